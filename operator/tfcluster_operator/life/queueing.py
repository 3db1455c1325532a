"""Queues: which part of a cluster has quota, according to its Workloads.

A TFCluster with the label of a queue gets pods only for what Kueue has admitted.  Its Workloads are called claims here.
The first claim covers the whole cluster; a later one covers the tasks that an edit adds, so that running tasks continue
while the new ones wait.  The claims of a cluster are ordered by number, admitted ones before waiting ones, and each
covers the next tasks of a job by index.  A claim's tasks are counted without the pods whose quota was given back.

The result is a reduced declaration, which all other code uses: the cluster is suspended, or has only the tasks of each
job that were admitted.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from msgspec import structs

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import Job, Placement, TFCluster
from tfcluster_operator.objects.base import digest_of
from tfcluster_operator.objects.kinds import Observed
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.objects.workload import Flavor, Workload

#: The parts of a pod's spec that a queue evaluates: its resources, and which nodes it can use.
_JUDGED: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "overhead",
    "resources",
    "resourceClaims",
)
#: Kueue's annotations of pod templates that request a topology, by the fields of a podSet's request (Kueue, "Topology
#: Aware Scheduling").
_TOPOLOGY: Final = {
    "required": "kueue.x-k8s.io/podset-required-topology",
    "preferred": "kueue.x-k8s.io/podset-preferred-topology",
    "unconstrained": "kueue.x-k8s.io/podset-unconstrained-topology",
    "podSetGroupName": "kueue.x-k8s.io/podset-group-name",
    "podSetSliceRequiredTopology": "kueue.x-k8s.io/podset-slice-required-topology",
    "podSetSliceSize": "kueue.x-k8s.io/podset-slice-size",
}
#: Holds a pod back until Kueue has written its topology domain into it, and what Kueue finds the pod by.
_TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
_LABEL_POD_SET: Final = "kueue.x-k8s.io/podset"
_ANNOTATION_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_ANNOTATION_FIRST_INDEX: Final = "kueue.x-k8s.io/pod-index-offset"
#: Separates the least number of pods in an annotation.
_AT_LEAST: Final = ":"
_JUDGED_OF_CONTAINERS: Final = ("name", "resources", "restartPolicy")


class Turn(Enum):
    """The state of a cluster in its queue."""

    #: It does not have a queue.
    FREE = "free"
    #: The user has suspended it, so it does not request quota.
    SUSPENDED = "suspended"
    #: Its claims cannot be read: running tasks continue, and no task is added.
    UNKNOWN = "unknown"
    #: It waits for quota and does not have pods.
    WAITING = "waiting"
    #: The pods need something other than was admitted: they are deleted, and the cluster waits again.
    CHANGED = "changed"
    #: Its first claim was admitted.
    ADMITTED = "admitted"
    #: The cluster has finished.
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Claim:
    """One Workload of a cluster, and the tasks that it covers: the index of the first one and their number, by job."""

    number: int
    workload: Workload
    first: Mapping[str, int]
    count: Mapping[str, int]

    def covers(self, job: str, index: int) -> bool:
        """Return whether it covers a task."""
        return 0 <= index - self.first.get(job, 0) < self.count.get(job, 0)


@dataclass(frozen=True, slots=True)
class Standing:
    """A cluster in its queue: ``cluster`` is the part with quota, ``holding`` admitted claims, ``rest`` the others."""

    turn: Turn
    cluster: TFCluster
    holding: tuple[Claim, ...] = ()
    rest: tuple[Claim, ...] = ()
    missing_flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    why: str = ""

    @property
    def granted(self) -> Mapping[str, int]:
        """The number of tasks of each job with quota, declared or not."""
        return _total(self.holding)


def stand(cluster: TFCluster, observed: Observed) -> Standing:
    """Return the part of a cluster that has quota."""
    claims = sorted(_claims_of(cluster, observed), key=_rank)
    known = cluster.ledger if cluster.queue else Ledger()
    if known.verdict is not None:
        # Kueue can delete the Workloads of a finished cluster; this does not change the cluster.
        return Standing(Turn.FINISHED, _with_tasks(cluster, known.granted), rest=tuple(_in_order(cluster, claims)))
    if not cluster.queue or cluster.suspend:
        turn = Turn.SUSPENDED if cluster.queue else Turn.FREE
        return Standing(turn, cluster, rest=tuple(_in_order(cluster, claims)))
    if observed.lacking.get(Workload.KIND, ""):
        return _unknown(cluster, observed, known.granted)
    holding: list[Claim] = []
    rest: list[Claim] = []
    lost: set[str] = set()
    for claim in _in_order(cluster, claims):
        follows = (claim.number == 0 or bool(holding)) and lost.isdisjoint(claim.count)
        held = follows and claim.workload.admitted
        (holding if held else rest).append(claim)
        if not held and _has_topology(claim.workload):
            lost.update(claim.count)
    if any(_is_of_the_past(cluster, claim) for claim in (*holding, *rest)):
        return Standing(Turn.CHANGED, replace(cluster, suspend=True), rest=(*holding, *rest))
    if not holding and any(job.replicas for job in cluster.jobs):
        return Standing(Turn.WAITING, replace(cluster, suspend=True), rest=tuple(rest))
    granted, missing = _total(holding), dict[str, tuple[str, ...]]()
    jobs = []
    for job in cluster.jobs:
        placements = tuple(_placements(job, holding, observed.flavors))
        jobs.append(structs.replace(job, replicas=min(job.replicas, granted.get(job.name, 0)), placements=placements))
        named = {one for claim in holding for one in claim.workload.flavors(naming.dns_job(job.name))}
        if unknown := tuple(sorted(named - observed.flavors.keys())):
            missing[job.name] = unknown
    return Standing(
        Turn.ADMITTED,
        replace(cluster, jobs=tuple(jobs)),
        holding=tuple(holding),
        rest=tuple(rest),
        missing_flavors=missing,
        why=observed.lacking.get(Flavor.KIND, ""),
    )


def as_reported(cluster: TFCluster) -> Standing:
    """Return the part of a cluster that has quota according to its status, for users who cannot read Workloads."""
    if not cluster.queue or cluster.suspend:
        return Standing(Turn.SUSPENDED if cluster.queue else Turn.FREE, cluster)
    known, no_task = cluster.ledger, not any(job.replicas for job in cluster.jobs)
    conditions = {one.get("type"): one.get("status") for one in cluster.status.get("conditions") or ()}
    if known.verdict is not None:
        return Standing(Turn.FINISHED, _with_tasks(cluster, known.granted))
    if conditions.get("Suspended", "True") == "True" or not (known.granted or no_task):
        return Standing(Turn.WAITING, replace(cluster, suspend=True))
    return Standing(Turn.ADMITTED, _with_tasks(cluster, known.granted))


def asked_of(job: Job) -> dict[str, Any]:
    """Return the part of a job's template that a queue evaluates, as a PodTemplateSpec."""
    spec: Mapping[str, Any] = job.template.get("spec") or {}
    judged: dict[str, Any] = {key: spec[key] for key in _JUDGED if spec.get(key)}
    for group in ("initContainers", "containers"):
        if spec.get(group):
            judged[group] = [
                {key: container[key] for key in _JUDGED_OF_CONTAINERS if container.get(key)}
                for container in spec[group]
            ]
    # The template can have another value, but the pods always have Never.
    asked = {"spec": {**judged, "restartPolicy": "Never"}}
    topology = _topology_annotations(job)
    return {"metadata": {"annotations": topology}, **asked} if topology else asked


def _topology_annotations(job: Job) -> dict[str, str]:
    found: Mapping[str, Any] = (job.template.get("metadata") or {}).get("annotations") or {}
    return {name: str(found[name]) for name in _TOPOLOGY.values() if name in found}


def topology_request(job: Job) -> dict[str, Any]:
    """Return the topology that a job's template requests, as a field of its podSet; empty if it requests none."""
    asked = _topology_annotations(job)
    request: dict[str, Any] = {field: asked[name] for field, name in _TOPOLOGY.items() if name in asked}
    if "unconstrained" in request:
        request["unconstrained"] = request["unconstrained"] == "true"
    if (size := request.get("podSetSliceSize", "")).isdecimal():  # the API server rejects other texts
        request["podSetSliceSize"] = int(size)
    return {"topologyRequest": {"podIndexLabel": naming.LABEL_TASK_INDEX, **request}} if request else {}


def asks_of(job: Job) -> str:
    """Return a digest of what one pod of a job requests."""
    return digest_of(asked_of(job))


def asks_annotation(jobs: Iterable[Job], least: Mapping[str, int]) -> str:
    """Write the requests of some jobs' pods, and the least number of pods, as a claim's annotation."""
    fewest = {name: f"{_AT_LEAST}{count}" for name, count in least.items()}
    asks = {naming.dns_job(job.name): asks_of(job) + fewest.get(job.name, "") for job in jobs}
    return json.dumps(asks, sort_keys=True, separators=(",", ":"))


def may_be_fewer(cluster: TFCluster, counts: Mapping[str, int], *, number: int) -> dict[str, int]:
    """Return the least number of tasks of a job that its queue can admit, from ``spec.jobs.J.minReplicas``."""
    # Of one job: Kueue allows partial admission for one podSet only.
    if cluster.gang is None:
        return {}
    for job in cluster.jobs:
        count, least = counts.get(job.name, 0), job.min_replicas
        if least is not None and least < job.replicas and count > 1:
            fewest = max(1, least) if number == 0 else 1
            return {job.name: fewest} if fewest < count else {}
    return {}


def job_of_pod_set(cluster: TFCluster, pod_set: str) -> Job | None:
    """Return the job that a podSet stands for; None if it is no longer declared."""
    return next((job for job in cluster.jobs if naming.dns_job(job.name) == pod_set), None)


def is_at_work(pod: Pod) -> bool:
    """Return whether a pod uses resources, as the scheduler counts: a terminating one, too, until it has ended."""
    return pod.phase not in {"Succeeded", "Failed"}


def _claims_of(cluster: TFCluster, observed: Observed) -> Iterator[tuple[int, Workload]]:
    for name, workload in observed.of(Workload).items():
        number = naming.claim_number(name)
        if number >= 0 and workload.meta.owner_uid == cluster.uid and not workload.meta.terminating:
            yield number, workload


def _rank(claim: tuple[int, Workload]) -> tuple[bool, int]:
    """Order admitted claims before waiting ones, so that a lost claim does not affect the tasks of another."""
    # With a topology it does: Kueue counts the domains by the Workload that the pods have been created for.
    number, workload = claim
    return number > 0 and not workload.admitted and not _has_topology(workload), number


def _has_topology(workload: Workload) -> bool:
    return any(workload.has_topology(pod_set) for pod_set in workload.asked)


def _in_order(cluster: TFCluster, claims: Iterable[tuple[int, Workload]]) -> Iterator[Claim]:
    reached: dict[str, int] = {}
    for number, workload in claims:
        counts = {}
        for pod_set, asked in workload.asked.items():
            job = job_of_pod_set(cluster, pod_set)
            name = pod_set if job is None else job.name
            # Reclaimed pods count from the requested number, not from the admitted one.
            left = max(0, asked - workload.reclaimed.get(pod_set, 0))
            counts[name] = left if workload.granted is None else min(left, workload.granted.get(pod_set, 0))
        yield Claim(number, workload, {name: reached.get(name, 0) for name in counts}, counts)
        for name, count in counts.items():
            reached[name] = reached.get(name, 0) + count


def _total(claims: Iterable[Claim]) -> dict[str, int]:
    total: dict[str, int] = {}
    for claim in claims:
        for name, count in claim.count.items():
            total[name] = total.get(name, 0) + count
    return total


def _is_of_the_past(cluster: TFCluster, claim: Claim) -> bool:
    """Return whether a claim was admitted in another queue, or for pods with other requests than now."""
    workload = claim.workload
    if workload.granted is None:
        return False
    if workload.queue != cluster.queue:
        return True
    asks = read_asks(workload)
    jobs = (job for job in cluster.jobs if claim.count.get(job.name) and job.replicas)
    # If the annotation was removed, the requests are unknown: this must not end a training.
    return any(asks.get(naming.dns_job(job.name), now) != now for job in jobs for now in [asks_of(job)])


def read_asks(workload: Workload) -> Mapping[str, str]:
    """Return the requests of each podSet's pods when a claim was written; empty if the annotation was edited."""
    try:
        found = json.loads(workload.meta.annotations.get(naming.ANNOTATION_ASKS, ""))
    except ValueError:
        return {}
    if not isinstance(found, Mapping):
        return {}
    return {str(pod_set): str(of).partition(_AT_LEAST)[0] for pod_set, of in found.items()}


def _unknown(cluster: TFCluster, observed: Observed, granted: Mapping[str, int]) -> Standing:
    """Keep running tasks, which were admitted before: the API or the permission to read it might have been removed."""
    why, counts = observed.lacking.get(Workload.KIND, ""), dict(granted)
    running = [pod for pod in observed.pods.values() if pod.meta.owner_uid == cluster.uid and is_at_work(pod)]
    if not running:
        return Standing(Turn.UNKNOWN, replace(cluster, suspend=True), why=why)
    for pod in running if not granted else ():
        first, index = naming.first_pod_name(pod.meta.name)[0], naming.index_of(pod.meta.name)
        for job in cluster.jobs:
            if naming.pod_name(cluster.name, job.name, index) == first:
                counts[job.name] = max(index + 1, counts.get(job.name, 0))
    return Standing(Turn.UNKNOWN, _with_tasks(cluster, counts), why=why)


def _with_tasks(cluster: TFCluster, counts: Mapping[str, int]) -> TFCluster:
    jobs = tuple(structs.replace(job, replicas=min(job.replicas, counts.get(job.name, 0))) for job in cluster.jobs)
    return replace(cluster, jobs=jobs)


def _placements(job: Job, holding: Iterable[Claim], flavors: Mapping[str, Flavor]) -> Iterator[Placement]:
    pod_set = naming.dns_job(job.name)
    for claim in holding:
        start, count = claim.first.get(job.name, 0), claim.count.get(job.name, 0)
        if not count:
            continue
        workload = claim.workload
        named = [flavors[one] for one in workload.flavors(pod_set) if one in flavors]
        updates = [one for one in workload.updates if one.name == pod_set]
        given = (
            *((one.node_labels, one.tolerations) for one in named),
            *((u.node_selector, u.tolerations) for u in updates),
        )
        selector: dict[str, str] = {}
        tolerations: list[Mapping[str, Any]] = []
        for labels, tolerated in given:
            selector.update(labels)
            tolerations += [one for one in tolerated if one not in tolerations]
        labels = {key: value for update in updates for key, value in update.labels.items()}
        annotations = {key: value for update in updates for key, value in update.annotations.items()}
        gates: tuple[str, ...] = ()
        if workload.has_topology(pod_set):
            if not _topology_annotations(job):  # Kueue would ignore a pod without one
                annotations[_TOPOLOGY["unconstrained"]] = "true"
            annotations |= {_ANNOTATION_WORKLOAD: workload.meta.name, _ANNOTATION_FIRST_INDEX: str(start)}
            labels[_LABEL_POD_SET] = pod_set
            gates = (_TOPOLOGY_GATE,)
        placement = Placement(start, start + count, selector, tuple(tolerations), labels, annotations, gates)
        if placement != Placement(start, start + count):
            yield placement
