"""The NetworkPolicies of a cluster's isolation: which tasks reach a task's port, if the network enforces them.

TensorFlow's servers execute any graph that they receive (TensorFlow, SECURITY.md), so a client that reaches a task's
port controls the task.  Mode Cluster allows the tasks of the same cluster.  Mode DeviceFilters allows those that the
filters join: a task that receives a stream connects back, so the policies are the symmetric closure of what they see.

Policies are few and do not change when the cluster is resized: tasks that no filter names are the *rest* of their job,
and the rest is selected by excluding the others.  Only tasks with filters of their own, and those that a filter names
by index, are selected by their index.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import EVALUATOR, Job, TFCluster, parse_filter, seen_with
from tfcluster_operator.objects import base
from tfcluster_operator.objects.base import Child, Meta, Metadata

_LAST_PORT: Final = 65_535
#: Stands for every task of a job that no filter distinguishes from the others.
_REST: Final = -1
#: A network plug-in can fail to protect pods whose selector has more values than fit into one of its rules: Azure's
#: accepted 200 and not 1,000.
_NAMED_AT_ONCE: Final = 100

#: Indices of one job; _REST among them stands for the rest.
_Indices = frozenset[int]
#: A set of tasks: by job, the indices in it; jobs without a task in it are left out.
_Tasks = Mapping[str, _Indices]


class _Wire(msgspec.Struct):
    metadata: Metadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """A NetworkPolicy: the digest of its spec, and its podSelector, because a patch must name removed labels."""

    KIND: ClassVar = "NetworkPolicy"
    meta: Meta
    digest: str
    pod_selector: Mapping[str, Any]
    ingress: bool = True


def _read(wire: _Wire) -> NetworkPolicy:
    meta, spec = Meta.read(wire.metadata), wire.spec
    # Otherwise a new label on another owner's policy would trigger a reconcile of every cluster in the namespace.
    meta = meta if naming.LABEL_CLUSTER in meta.labels else replace(meta, labels={})
    ingress = "Ingress" in spec.get("policyTypes", ("Ingress",))
    return NetworkPolicy(meta, base.digest_of(spec), spec.get("podSelector") or {}, ingress)


def _names(cluster: TFCluster, known: Iterable[Child]) -> list[str]:
    return [one.name for one in policies_of(cluster, (one for one in known if isinstance(one, NetworkPolicy)))]


# Other owners' policies affect the content of ours, so all are watched.
KIND: Final = base.kind_of(
    NetworkPolicy,
    "networkpolicies",
    _Wire,
    _read,
    _names,
    api="/apis/networking.k8s.io/v1",
    ours_alone=False,
)


def build(cluster: TFCluster, policy: "Policy") -> dict[str, Any]:
    """Build one NetworkPolicy."""
    labels = base.labels_of(cluster, policy.job)
    return base.manifest(cluster, "networking.k8s.io/v1", "NetworkPolicy", policy.name, labels, spec=policy.spec)


def change(cluster: TFCluster, wanted: "Policy", existing: NetworkPolicy) -> dict[str, Any] | None:
    """Return the patch that corrects a NetworkPolicy, or None if nothing differs."""
    spec = None
    if existing.digest != wanted.digest:
        selector = wanted.spec["podSelector"]
        cleared = {**dict.fromkeys(existing.pod_selector), **selector}
        cleared |= base.selecting(selector["matchLabels"], {"matchLabels": existing.pod_selector.get("matchLabels")})
        spec = {"ingress": None, "egress": None, **wanted.spec, "podSelector": cleared}
    return base.change_of(existing.meta, labels=base.labels_of(cluster, wanted.job), spec=spec)


@dataclass(frozen=True, slots=True)
class Policy:
    """One wanted NetworkPolicy: its name, its job ("" for all), its spec and the spec's digest."""

    name: str
    job: str
    spec: Mapping[str, Any]
    digest: str


class _Source(NamedTuple):
    """All inputs of the policies, hashable."""

    cluster: str
    by_filters: bool
    all_ports: bool
    governed: frozenset[str]
    allow_from: str
    jobs: tuple[tuple[str, int, tuple[str, ...], tuple[tuple[int, tuple[str, ...]], ...]], ...]


def policies_of(cluster: TFCluster, others: Iterable[NetworkPolicy] = ()) -> tuple[Policy, ...]:
    """Build the NetworkPolicies of a cluster: one for all tasks if their peers are the same, else several."""
    # NetworkPolicies are a union: if one of ``others``, which no TFCluster controls, selects the pods of a job, it
    # decides on their other ports, and ours must not open them.
    isolation = cluster.isolation
    if isolation.mode == "None":
        return ()
    return _policies(
        _Source(
            cluster.name,
            isolation.mode == "DeviceFilters",
            isolation.port_scope == "All",
            frozenset() if isolation.port_scope == "All" else _governed(cluster, others),
            json.dumps(isolation.allow_from, sort_keys=True),
            tuple((j.name, j.port, j.filters, tuple(sorted(j.task_filters.items()))) for j in cluster.jobs),
        )
    )


def _governed(cluster: TFCluster, others: Iterable[NetworkPolicy]) -> frozenset[str]:
    """Return the names of the jobs whose pods another owner's ingress policy selects."""
    selectors = [one.pod_selector for one in others if one.ingress]
    if not selectors:
        return frozenset()
    governed = set()
    for job in cluster.jobs:
        about = job.template.get("metadata") or {}
        labels = {**(about.get("labels") or {}), **naming.job_labels(cluster.name, job.name)}
        if any(_selects(selector, labels) for selector in selectors):
            governed.add(job.name)
    return frozenset(governed)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects some task of a job; conditions on the task's index are ignored."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if key != naming.LABEL_TASK_INDEX and labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions") or ():
        key, operator, values = one.get("key"), one.get("operator"), one.get("values") or ()
        if key == naming.LABEL_TASK_INDEX:
            continue
        if operator in {"In", "Exists"} and (key not in labels or (operator == "In" and labels[key] not in values)):
            return False
        if key in labels and (operator == "DoesNotExist" or (operator == "NotIn" and labels[key] in values)):
            return False
    return True


# Only an edit changes the policies, and with 512 filters of single tasks they take long to build: reconciles use a
# cache. It is small, because the policies of one cluster can take a megabyte.
@lru_cache(maxsize=32)
def _policies(source: _Source) -> tuple[Policy, ...]:
    jobs = tuple(
        Job(name=name, port=port, filters=of_all, task_filters=dict(of_tasks))
        for name, port, of_all, of_tasks in source.jobs
    )
    everyone = dict.fromkeys((job.name for job in jobs), frozenset({_REST}))
    apart = _told_apart(jobs) if source.by_filters else {job.name: frozenset[int]() for job in jobs}
    peers = _peers(jobs, apart) if source.by_filters else {(job.name, _REST): everyone for job in jobs}
    groups = [part for job in jobs for group in _groups(job, apart[job.name], peers) for part in _parts(group)]
    whole = {name: indices | {_REST} for name, indices in apart.items()}
    ports = {job.port for job in jobs}
    alike = len(ports) == 1 and len({job.name in source.governed for job in jobs}) == 1
    if alike and all(group.peers == whole for group in groups):
        only = _every_task(source.cluster)
        let_in = [{"podSelector": only}, *json.loads(source.allow_from)]
        return (
            _policy(
                naming.policy_name(source.cluster), "", _spec(source, ports, only, let_in, others=not source.governed)
            ),
        )
    found = []
    for group in groups:
        selected = _some_tasks(source.cluster, group.job.name, group.indices, apart[group.job.name])
        let_in = [{"podSelector": one} for one in _selectors(source.cluster, group.peers, apart)]
        index = None if _REST in group.indices else min(group.indices)
        others = group.job.name not in source.governed
        name = naming.policy_name(source.cluster, group.job.name, index)
        found.append(_policy(name, group.job.name, _spec(source, {group.job.port}, selected, let_in, others=others)))
    if guests := json.loads(source.allow_from):
        # Once for the cluster, and not in each of up to a thousand policies.
        spec = _spec(source, ports, _every_task(source.cluster), guests, others=False)
        found.append(_policy(naming.guests_policy_name(source.cluster), "", spec))
    return tuple(found)


def _policy(name: str, job: str, spec: Mapping[str, Any]) -> Policy:
    return Policy(name, job, spec, base.digest_of(spec))


def _told_apart(jobs: tuple[Job, ...]) -> dict[str, _Indices]:
    """Return the tasks of each job that have filters of their own, or that a filter names by their index."""
    named: dict[str, set[int]] = {job.name: set(job.task_filters) for job in jobs}
    for job in jobs:
        for texts in (job.filters, *job.task_filters.values()):
            for one in map(parse_filter, texts):
                if one is not None and one.task is not None:
                    for name in named if one.job is None else {one.job} & named.keys():
                        named[name].add(one.task)
    return {name: frozenset(indices) for name, indices in named.items()}


def _peers(jobs: tuple[Job, ...], apart: Mapping[str, _Indices]) -> dict[tuple[str, int], _Tasks]:
    """Return the peers of each distinguished task and of the rest of each job: tasks that it sees or that see it."""
    sees: dict[tuple[str, int], dict[str, _Indices]] = {}
    seen_by: dict[tuple[str, int], dict[str, set[int]]] = {}
    shown: dict[tuple[str, ...], dict[str, _Indices]] = {}
    for job in jobs:
        for index in (*apart[job.name], _REST):
            texts = job.filters_of(index)
            if texts not in shown:
                shown[texts] = _shown(texts, jobs, apart)
            sees[job.name, index] = shown[texts]
            for name, indices in shown[texts].items():
                for one in indices:
                    seen_by.setdefault((name, one), {}).setdefault(job.name, set()).add(index)
    return {task: _joined(those, seen_by.get(task, {})) for task, those in sees.items()}


def _shown(texts: tuple[str, ...], jobs: tuple[Job, ...], apart: Mapping[str, _Indices]) -> dict[str, _Indices]:
    """Return the tasks that some filters show; evaluators are in no view."""
    found = {}
    for job in jobs:
        if job.name == EVALUATOR:
            continue
        visible = seen_with(texts, job.name)
        if indices := apart[job.name] | {_REST} if visible.everything else visible.indices:
            found[job.name] = indices
    return found


def _joined(one: _Tasks, other: Mapping[str, set[int]]) -> _Tasks:
    return {name: one.get(name, frozenset()) | other.get(name, frozenset()) for name in {**one, **other}}


class _Group(NamedTuple):
    """Tasks of one job with the same peers."""

    job: Job
    indices: _Indices
    peers: _Tasks


def _groups(job: Job, apart: _Indices, peers: Mapping[tuple[str, int], _Tasks]) -> list[_Group]:
    """Group the tasks of a job that have the same peers, the rest first."""
    groups: dict[tuple[tuple[str, _Indices], ...], set[int]] = {}
    for index in (_REST, *sorted(apart)):
        groups.setdefault(tuple(sorted(peers[job.name, index].items())), set()).add(index)
    return [_Group(job, frozenset(indices), dict(key)) for key, indices in groups.items()]


def _parts(group: _Group) -> Iterator[_Group]:
    """Return a group, or its parts if a selector would have to name too many of its tasks."""
    if _REST in group.indices:
        yield group
        return
    for some in _in_turns(group.indices):
        yield group._replace(indices=frozenset(some))


def _in_turns(indices: _Indices) -> Iterator[list[int]]:
    in_order = sorted(indices)
    return (in_order[start : start + _NAMED_AT_ONCE] for start in range(0, len(in_order), _NAMED_AT_ONCE))


def _selectors(cluster: str, tasks: _Tasks, apart: Mapping[str, _Indices]) -> Iterator[dict[str, Any]]:
    """Yield selectors for some tasks: one for whole jobs together, one for each partial job."""
    whole = [name for name in sorted(tasks) if tasks[name] == apart[name] | {_REST}]
    if len(whole) == len(apart):
        yield _every_task(cluster)
        return
    if whole:
        among = {"key": naming.LABEL_JOB, "operator": "In", "values": whole}
        yield {**_every_task(cluster), "matchExpressions": [among]}
    for name in sorted(tasks):
        if name in whole:
            continue
        for some in [tasks[name]] if _REST in tasks[name] else _in_turns(tasks[name]):
            yield _some_tasks(cluster, name, frozenset(some), apart[name])


def _every_task(cluster: str) -> dict[str, Any]:
    """Return the selector of a cluster's pods."""
    return {"matchLabels": {naming.LABEL_CLUSTER: cluster}}


def _some_tasks(cluster: str, job: str, indices: _Indices, apart: _Indices) -> dict[str, Any]:
    """Return the selector of some tasks of a job; ``apart`` are its distinguished tasks."""
    selector: dict[str, Any] = {"matchLabels": {naming.LABEL_CLUSTER: cluster, naming.LABEL_JOB: job}}
    others = apart - indices
    if _REST in indices and others:
        selector["matchExpressions"] = [_by_index("NotIn", some) for some in _in_turns(others)]
    elif _REST not in indices:
        selector["matchExpressions"] = [_by_index("In", sorted(indices))]
    return selector


def _by_index(operator: str, indices: list[int]) -> dict[str, Any]:
    return {"key": naming.LABEL_TASK_INDEX, "operator": operator, "values": [str(index) for index in indices]}


def _spec(
    source: _Source, ports: set[int], selected: Mapping[str, Any], peers: list[dict[str, Any]], *, others: bool
) -> dict[str, Any]:
    """Return a policy's spec, with defaults; ``others`` allows the other ports, which no other policy restricts."""
    rules: list[dict[str, Any]] = []
    if peers:  # A rule with an empty list of peers allows all clients
        to_ports = {} if source.all_ports else {"ports": [_ports(port, port) for port in sorted(ports)]}
        rules.append({"from": peers, **to_ports})
    if others and not source.all_ports:
        (port,) = ports
        rules.append({"ports": [*_other_ports(port), {"protocol": "UDP"}, {"protocol": "SCTP"}]})
    spec: dict[str, Any] = {"podSelector": dict(selected), "policyTypes": ["Ingress"]}
    return {**spec, "ingress": rules} if rules else spec


def _other_ports(port: int) -> Iterator[dict[str, Any]]:
    """Return every TCP port but one, as ranges: a policy can only list allowed ports."""
    if port > 1:
        yield _ports(1, port - 1)
    if port < _LAST_PORT:
        yield _ports(port + 1, _LAST_PORT)


def _ports(first: int, last: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": first, **({"endPort": last} if last > first else {})}
