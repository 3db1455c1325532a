"""Properties that every run must have, independent of its fault."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from decisions.test_isolation_evaluated import selects
from simulation import dialect, faults, snapshot
from simulation.plans import Line, Plan, Write, stable
from simulation.quota import granted
from simulation.world import Moment

from tfcluster_resolver import contract
from tfcluster_resolver.cluster import own_task

_REFERENCES: Final = Path(__file__).parent / "references"
#: The maximal time for which a status can be untrue after the fault, in seconds.
_LIE_AT_MOST: Final = 5.0
_GARBAGE_COLLECTOR: Final = "system:serviceaccount:kube-system:generic-garbage-collector"
_NOT_COUNTED: Final = frozenset({"events", "leases", "namespaces", "tfclusters"})
#: These delete no pod: losses are counted as in an undisturbed run, but an operator that dies can forget one.
_TAKE_NO_POD: Final = frozenset({*faults.DEADLY, "answer lost"})
#: These hide or replace pods: an operator that has just started cannot distinguish that from a loss.
_TAKE_PODS: Final = frozenset({"tampering", "swapped pod"})

Deeds = Counter[str]


@dataclass(slots=True)
class Outcome:
    plan: Plan
    #: The snapshot after each step, and the names of steps that were not completed.
    steps: dict[str, Any] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    creates: Deeds = field(default_factory=Counter)
    deletes: Deeds = field(default_factory=Counter)
    #: Deletions by other actors.
    others: Deeds = field(default_factory=Counter)
    #: Writes after the last step was complete.
    late: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    lies: list[str] = field(default_factory=list)
    ledger: list[str] = field(default_factory=list)
    #: Differences between the metrics and the objects.
    gauges: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    error: str = ""
    met: bool = False
    writes: list[Write] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    seconds: float = 0.0
    virtual: float = 0.0


# --- references


def learn(outcome: Outcome) -> None:
    """Save the outcome of a clean run as the reference of its workload."""
    before: Any = {}
    steps = {}
    for name, found in outcome.steps.items():
        steps[name], before = snapshot.change(before, found), found
    told = {
        "steps": steps,
        "creates": dict(sorted(outcome.creates.items())),
        "deletes": dict(sorted(outcome.deletes.items())),
    }
    told["others"] = dict(sorted(outcome.others.items()))
    path_of(outcome.plan.workload).write_text(_lines(told, depth=2) + "\n")


def _lines(told: Mapping[str, Any], depth: int) -> str:
    """Serialize JSON with one object of a snapshot per line, for readable diffs."""

    def value(of: Any) -> str:
        return _lines(of, depth - 1) if depth and isinstance(of, Mapping) and of else json.dumps(of)

    return "{\n" + ",\n".join(f"{json.dumps(key)}: {value(each)}" for key, each in told.items()) + "\n}"


def path_of(workload: str) -> Path:
    return _REFERENCES / f"{workload.replace(' ', '-').replace(chr(39), '')}.json"


def reference(workload: str) -> dict[str, Any]:
    """Return the reference of a workload with full snapshots; empty if it was never recorded."""
    path = path_of(workload)
    empty: dict[str, Any] = {"steps": {}, "creates": {}, "deletes": {}, "others": {}}
    told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else empty
    before: Any = {}
    for name, patch in told["steps"].items():
        before = snapshot.changed(before, patch)
        told["steps"][name] = before
    return told


# --- judging


def judge(outcome: Outcome, wanted: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong with a run."""
    if outcome.error:
        return [f"error: {outcome.error}"]
    return [
        *(f"died: {one}" for one in outcome.deaths),
        *(f"end: {one}" for one in _ends(outcome, wanted)),
        *(f"deeds: {one}" for one in _deeds(outcome, wanted)),
        *(f"late: {one}" for one in outcome.late),
        *(f"invariant: {one}" for one in outcome.broken),
        *(f"ledger: {one}" for one in outcome.ledger),
        *(f"metrics: {one}" for one in outcome.gauges),
        *(f"truth: {one}" for one in outcome.lies),
    ]


def _ends(outcome: Outcome, wanted: Mapping[str, Any]) -> Iterator[str]:
    for name, found in outcome.steps.items():
        pair = wanted["steps"].get(name, {}), found
        if outcome.plan.trigger is not None:
            if outcome.plan.action in _TAKE_NO_POD and outcome.plan.workload not in _TAKE_PODS:
                counted = [snapshot.disruptions(one) for one in pair]
                wrong = counted[1] - counted[0]
                wrong += Counter() if outcome.plan.action in faults.DEADLY else counted[0] - counted[1]
                yield from (f"after {name!r}: {job} has other disruptions" for job in wrong)
            pair = tuple(map(snapshot.without_reports, pair))
        for difference in snapshot.differences(*pair):
            yield f"after {name!r}: {difference}"
    for name in outcome.unfinished:
        yield f"step {name!r} does not come to its end"


def _deeds(outcome: Outcome, wanted: Mapping[str, Any]) -> Iterator[str]:
    for what, done in outcome.creates.items():
        # The operator must re-create what others deleted beyond the deletions of a clean run.
        more = max(0, outcome.others[what] - wanted["others"].get(what, 0))
        if done > wanted["creates"].get(what, 0) + more:
            yield f"{what} is created {done} times, not {wanted['creates'].get(what, 0)}"
    for what, done in outcome.deletes.items():
        if done > wanted["deletes"].get(what, 0):
            yield f"{what} is deleted {done} times, not {wanted['deletes'].get(what, 0)}"


# --- reading the history


def count(outcome: Outcome, history: Sequence[Any], moments: Mapping[int, Moment]) -> None:
    """Count the objects that were created, and those whose deletion was requested."""
    leaving: set[str] = set()
    for revision, kind, resource, body in history:
        if resource in _NOT_COUNTED or body["metadata"].get("namespace") != dialect.NAMESPACE:
            continue
        name = body["metadata"]["name"]
        if name.startswith("huge"):
            continue
        what, uid = f"{resource}/{stable(resource, name)}", body["metadata"]["uid"]
        if kind == "ADDED" and moments[revision].user == dialect.OPERATOR:
            outcome.creates[what] += 1
        asked = kind == "DELETED" or "deletionTimestamp" in body["metadata"]
        if asked and uid not in leaving:
            leaving.add(uid)
            user = moments[revision].user
            if user == dialect.OPERATOR:
                outcome.deletes[what] += 1
            elif user != _GARBAGE_COLLECTOR:
                # Objects of a deleted TFCluster that were garbage collected should not have been created.
                outcome.others[what] += 1


def broken(history: Sequence[Any], moments: Mapping[int, Moment]) -> Iterator[str]:
    """Return the revisions with two live pods of a task, or with a pod before its view or the true resolver."""
    living: dict[str, tuple[str, str, str]] = {}
    maps: set[tuple[str, str]] = set()
    for revision, kind, resource, body in history:
        metadata = body["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if resource == "configmaps":
            there = kind != "DELETED" and (key[1] != dialect.RESOLVER or dialect.is_our_copy(body))
            (maps.add if there else maps.discard)(key)
        if resource != "pods":
            continue
        owner = next((one["uid"] for one in metadata.get("ownerReferences") or () if one.get("controller")), "")
        over = kind == "DELETED" or body["status"].get("phase") in {"Succeeded", "Failed"}
        if over or not owner:
            living.pop(metadata["uid"], None)
            continue
        if kind != "ADDED" or moments[revision].user != dialect.OPERATOR:
            continue
        labels = metadata["labels"]
        task = (owner, labels[dialect.LABEL_JOB], labels[dialect.LABEL_INDEX])
        if task in living.values():
            yield f"two live pods of {task[1:]} at revision {revision}"
        living[metadata["uid"]] = task
        for volume in body["spec"].get("volumes") or ():
            needed = volume.get("configMap", {}).get("name")
            if needed and (key[0], needed) not in maps:
                yield f"{key[1]} comes before {stable('configmaps', needed)} at revision {revision}"


def unprotected(history: Sequence[Any], moments: Mapping[int, Moment]) -> Iterator[str]:
    """Return the revisions with a pod of an isolated cluster before a NetworkPolicy that selects it."""
    selectors: dict[str, dict[str, Any]] = {}
    isolated: set[str] = set()
    for revision, kind, resource, body in history:
        metadata = body["metadata"]
        if resource == "networkpolicies":
            selectors.pop(metadata["uid"], None)
            if kind != "DELETED":
                selectors[metadata["uid"]] = body["spec"]["podSelector"]
        elif resource == "tfclusters":
            closed = body["spec"].get("isolation", {}).get("mode", "None") != "None"
            (isolated.add if closed else isolated.discard)(metadata["uid"])
        elif resource == "pods" and kind == "ADDED" and moments[revision].user == dialect.OPERATOR:
            labels = metadata["labels"]
            of_isolated = any(one["uid"] in isolated for one in metadata["ownerReferences"])
            if of_isolated and not any(selects(one, labels) for one in selectors.values()):
                yield f"{metadata['name']} comes before a NetworkPolicy that selects it at revision {revision}"


def mistold(history: Sequence[Any], moments: Mapping[int, Moment]) -> Iterator[str]:
    """Return the revisions that created a pod with a TF_CONFIG other than in the published view."""
    views: dict[tuple[str, str], dict[str, str]] = {}
    wanted: set[str] = set()
    for revision, kind, resource, body in history:
        metadata = body["metadata"]
        if resource == "configmaps":
            views[metadata["namespace"], metadata["name"]] = body.get("data") or {}
        elif resource == "tfclusters" and body["spec"].get("resolver", {}).get("tfConfig") == "Environment":
            wanted.add(metadata["uid"])
        elif resource == "pods" and kind == "ADDED" and moments[revision].user == dialect.OPERATOR:
            # An admission plug-in can put a container before all others.
            container = next(one for one in body["spec"]["containers"] if one["name"] == "tensorflow")
            variables = {entry["name"]: entry.get("value") for entry in container["env"]}
            said = variables.get("TF_CONFIG")
            right = None
            if any(one["uid"] in wanted for one in metadata["ownerReferences"]):
                volumes = {one["name"]: one for one in body["spec"]["volumes"]}
                files = views[metadata["namespace"], volumes["tfcluster-view"]["configMap"]["name"]]
                own, view = own_task(variables), contract.load(files["cluster.json"])
                right = own and contract.tf_config(view, job=own.job, index=own.index, address=own.address)
            if said != right:
                yield f"{metadata['name']} has TF_CONFIG {said}, not {right}, at revision {revision}"


def unpaid(history: Sequence[Any], moments: Mapping[int, Moment]) -> Iterator[str]:
    """Return the revisions in which the operator gave a queued cluster more pods than quota."""
    queued: set[str] = set()
    alive: dict[str, set[str]] = defaultdict(set)
    quota: dict[str, dict[str, int]] = defaultdict(dict)
    for revision, kind, resource, body in history:
        metadata = body["metadata"]
        if resource == "tfclusters":
            waits = "kueue.x-k8s.io/queue-name" in (metadata.get("labels") or {})
            (queued.add if waits and kind != "DELETED" else queued.discard)(metadata["uid"])
        if resource not in {"pods", "workloads"}:
            continue
        by_operator = moments[revision].user == dialect.OPERATOR
        owner = next((one["uid"] for one in metadata.get("ownerReferences") or () if one.get("controller")), "")
        if resource == "pods":
            over = kind == "DELETED" or body["status"].get("phase") in {"Succeeded", "Failed"}
            (alive[owner].discard if over else alive[owner].add)(metadata["uid"])
            by_operator = by_operator and kind == "ADDED"
        elif kind != "DELETED":
            quota[owner][metadata["name"]] = granted(body)
        elif by_operator:
            # Only the operator's deletions count: a user's deletion takes the quota of running pods.
            quota[owner].pop(metadata["name"], None)
        if owner in queued and by_operator and len(alive[owner]) > sum(quota[owner].values()):
            yield f"{len(alive[owner])} pods and quota for {sum(quota[owner].values())} at revision {revision}"


# --- is the status true?


@dataclass(slots=True)
class _Told:
    cluster: dict[str, Any]
    wrong_since: float | None = None
    what: str = ""


def lies(
    history: Sequence[Any], moments: Mapping[int, Moment], *, end: float, blind: tuple[float, float] | None
) -> Iterator[str]:
    """Return the times at which a status was untrue for longer than permitted."""
    told: dict[str, _Told] = {}
    pods: dict[tuple[str, str], dict[str, Any]] = {}
    for revision, kind, resource, body in history:
        metadata = body["metadata"]
        if resource == "pods":
            key = (metadata["namespace"], metadata["name"])
            if kind == "DELETED":
                pods.pop(key, None)
            else:
                pods[key] = body
        elif resource == "tfclusters":
            if kind == "DELETED" or "deletionTimestamp" in metadata:
                told.pop(metadata["uid"], None)
            else:
                told.setdefault(metadata["uid"], _Told(body)).cluster = body
        else:
            continue
        at = moments[revision].at
        for one in told.values():
            yield from _look(one, pods, at, blind)
    for one in told.values():
        if one.wrong_since is not None:
            yield from _complaint(one, end, blind)


def _look(
    one: _Told, pods: Mapping[tuple[str, str], dict[str, Any]], at: float, blind: tuple[float, float] | None
) -> Iterator[str]:
    what = _untruth(one.cluster, pods)
    if what == one.what:
        return
    if one.wrong_since is not None:
        yield from _complaint(one, at, blind)
    one.what, one.wrong_since = what, at if what else None


def _complaint(one: _Told, until: float, blind: tuple[float, float] | None) -> Iterator[str]:
    assert one.wrong_since is not None
    since = one.wrong_since
    if blind is not None and blind[0] <= until and since <= blind[1]:
        since = blind[1]
    if until - since > _LIE_AT_MOST:
        yield f"{one.what} for {until - since:.1f} s"


def _untruth(cluster: dict[str, Any], pods: Mapping[tuple[str, str], dict[str, Any]]) -> str:
    metadata, spec, status = cluster["metadata"], cluster["spec"], cluster.get("status") or {}
    if spec.get("managedBy"):
        return ""
    if status.get("observedGeneration") != metadata["generation"]:
        return f"the status of {metadata['name']} speaks of an old generation"
    if dialect.condition(cluster, "Ready").get("status") != "True" or dialect.verdict(status) is not None:
        return ""
    for job, declared in spec["jobs"].items():
        done = dialect.completed(dialect.record_of(status, job))
        for index in range(declared.get("replicas", 1)) if job != "evaluator" else ():
            name = f"{metadata['name']}-{job.replace('_', '-')}-{index}"
            at_work = (one for one in pods.values() if _is_at(one, metadata["namespace"], name))
            if index not in done and not any(_is_ready(one, metadata["uid"]) for one in at_work):
                return f"{metadata['name']} says that it is ready and {name} is not"
    return ""


def _is_at(pod: dict[str, Any], namespace: str, hostname: str) -> bool:
    return pod["metadata"]["namespace"] == namespace and pod["spec"].get("hostname") == hostname


def _is_ready(pod: dict[str, Any], owner: str) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    if not any(one["uid"] == owner for one in pod["metadata"].get("ownerReferences") or ()):
        return False
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())
