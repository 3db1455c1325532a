"""Queues: what of a cluster has quota, by the Workloads with which it asks for that.

A TFCluster with the label of a queue gets pods for what Kueue has granted, and for nothing else.  It asks by Workloads,
called claims here.  The first stands for the whole cluster; a later one for the tasks that an edit adds, so that what
runs continues while they wait.  The claims of a cluster stand in the order of their numbers, those that were granted
before those that wait, and each covers the tasks of a job that come next by index.  What a claim stands for is counted
without the pods whose quota was given back.

What a cluster is without quota is told by another declaration, on which everything else builds: it is suspended, or has
as many tasks of each job as were granted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from tfcluster_operator.declaration import ledger, naming
from tfcluster_operator.declaration.spec import Job, Placement, TFCluster
from tfcluster_operator.objects.base import digest_of
from tfcluster_operator.objects.observed import Observed
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.objects.workload import Flavor, Workload

#: What of a pod's spec a queue judges: what it takes, and which nodes it can take it from.
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
#: Stands before the least number of pods in an annotation.
_AT_LEAST: Final = ":"
_JUDGED_OF_CONTAINERS: Final = ("name", "resources", "restartPolicy")


class Turn(Enum):
    """How a cluster stands in its queue."""

    #: It names no queue.
    FREE = "free"
    #: The user has suspended it, so that it asks for nothing.
    SUSPENDED = "suspended"
    #: Nothing is known of its claims: what runs continues, and nothing is added.
    UNKNOWN = "unknown"
    #: It waits, and has no pods.
    WAITING = "waiting"
    #: Its pods need something else than was granted: they go, and it waits again.
    CHANGED = "changed"
    #: Its first claim was granted.
    ADMITTED = "admitted"
    #: The cluster has finished.
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Claim:
    """One Workload of a cluster, and the tasks that it stands for.

    ``first`` is the index of the first of them and ``count`` how many they are, by job.
    """

    number: int
    workload: Workload
    first: Mapping[str, int]
    count: Mapping[str, int]

    def covers(self, job: str, index: int) -> bool:
        """Return whether it stands for a task."""
        return 0 <= index - self.first.get(job, 0) < self.count.get(job, 0)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a cluster stands in its queue.

    ``cluster`` is what it has quota for.  ``holding`` are the claims that were granted, if the first one was; ``rest``
    are the others.  ``missing_flavors`` says, by job, which ResourceFlavors nobody knows.  ``why`` says
    why nothing is known.
    """

    turn: Turn
    cluster: TFCluster
    holding: tuple[Claim, ...] = ()
    rest: tuple[Claim, ...] = ()
    missing_flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    why: str = ""

    @property
    def granted(self) -> Mapping[str, int]:
        """How many tasks of each job have quota, declared or not."""
        return _total(self.holding)


def stand(cluster: TFCluster, observed: Observed) -> Standing:
    """Return what of a cluster has quota."""
    claims = sorted(_claims_of(cluster, observed), key=_rank)
    known = ledger.read(cluster.status) if cluster.queue else ledger.Ledger()
    if known.verdict is not None:
        # Kueue can delete the Workloads of what has finished, and that changes nothing any more.
        return Standing(Turn.FINISHED, _with_tasks(cluster, known.granted), rest=tuple(_in_order(cluster, claims)))
    if not cluster.queue or cluster.suspend:
        turn = Turn.SUSPENDED if cluster.queue else Turn.FREE
        return Standing(turn, cluster, rest=tuple(_in_order(cluster, claims)))
    if observed.lacking.get(Workload.KIND, ""):
        return _unknown(cluster, observed, known.granted)
    holding: list[Claim] = []
    rest: list[Claim] = []
    for claim in _in_order(cluster, claims):
        follows = claim.number == 0 or bool(holding)
        (holding if follows and claim.workload.admitted else rest).append(claim)
    if any(_is_of_the_past(cluster, claim) for claim in (*holding, *rest)):
        return Standing(Turn.CHANGED, replace(cluster, suspend=True), rest=(*holding, *rest))
    if not holding and any(job.replicas for job in cluster.jobs):
        return Standing(Turn.WAITING, replace(cluster, suspend=True), rest=tuple(rest))
    granted, missing = _total(holding), dict[str, tuple[str, ...]]()
    jobs = []
    for job in cluster.jobs:
        placements = tuple(_placements(job, holding, observed.flavors))
        jobs.append(replace(job, replicas=min(job.replicas, granted.get(job.name, 0)), placements=placements))
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
    """Return what of a cluster has quota by its status alone, for who cannot read its Workloads."""
    if not cluster.queue or cluster.suspend:
        return Standing(Turn.SUSPENDED if cluster.queue else Turn.FREE, cluster)
    known, no_task = ledger.read(cluster.status), not any(job.replicas for job in cluster.jobs)
    conditions = {one.get("type"): one.get("status") for one in cluster.status.get("conditions") or ()}
    if known.verdict is not None:
        return Standing(Turn.FINISHED, _with_tasks(cluster, known.granted))
    if conditions.get("Suspended", "True") == "True" or not (known.granted or no_task):
        return Standing(Turn.WAITING, replace(cluster, suspend=True))
    return Standing(Turn.ADMITTED, _with_tasks(cluster, known.granted))


def asked_of(job: Job) -> dict[str, Any]:
    """Return the part of a job's template that a queue judges, as a PodTemplateSpec."""
    spec: Mapping[str, Any] = job.template.get("spec") or {}
    judged: dict[str, Any] = {key: spec[key] for key in _JUDGED if spec.get(key)}
    for group in ("initContainers", "containers"):
        if spec.get(group):
            judged[group] = [
                {key: container[key] for key in _JUDGED_OF_CONTAINERS if container.get(key)}
                for container in spec[group]
            ]
    # The template's own might be any, and that of the pods is Never.
    return {"spec": {**judged, "restartPolicy": "Never"}}


def asks_of(job: Job) -> str:
    """Digest what one pod of a job asks for."""
    return digest_of(asked_of(job))


def asks_annotation(jobs: Iterable[Job], least: Mapping[str, int]) -> str:
    """Spell what the pods of some jobs ask for, and how few can come, for the annotation of a claim."""
    fewest = {name: f"{_AT_LEAST}{count}" for name, count in least.items()}
    asks = {naming.dns_job(job.name): asks_of(job) + fewest.get(job.name, "") for job in jobs}
    return json.dumps(asks, sort_keys=True, separators=(",", ":"))


def may_be_fewer(cluster: TFCluster, counts: Mapping[str, int], *, number: int) -> dict[str, int]:
    """Return the least number of tasks of a job that its queue can grant, from ``spec.jobs.J.minReplicas``.

    Returns:
        The number by job: of one job at most, because Kueue lets one podSet be smaller than it is.
    """
    if cluster.gang is None:
        return {}
    for job in cluster.jobs:
        count, least = counts.get(job.name, 0), job.min_replicas
        if least is not None and least < job.replicas and count > 1:
            fewest = max(1, least) if number == 0 else 1
            return {job.name: fewest} if fewest < count else {}
    return {}


def job_of_pod_set(cluster: TFCluster, pod_set: str) -> Job | None:
    """Return the job that a podSet stands for; None where it is no longer declared."""
    return next((job for job in cluster.jobs if naming.dns_job(job.name) == pod_set), None)


def is_at_work(pod: Pod) -> bool:
    """Return whether a pod takes resources, as the scheduler counts: a terminating one, too, until it has ended."""
    return pod.phase not in {"Succeeded", "Failed"}


def _claims_of(cluster: TFCluster, observed: Observed) -> Iterator[tuple[int, Workload]]:
    for name, workload in observed.of(Workload).items():
        number = naming.claim_number(name)
        if number >= 0 and workload.meta.owner_uid == cluster.uid and not workload.meta.terminating:
            yield number, workload


def _rank(claim: tuple[int, Workload]) -> tuple[bool, int]:
    """Put those that were granted before those that wait, so that the loss of one costs no task of another."""
    number, workload = claim
    return number > 0 and not workload.admitted, number


def _in_order(cluster: TFCluster, claims: Iterable[tuple[int, Workload]]) -> Iterator[Claim]:
    reached: dict[str, int] = {}
    for number, workload in claims:
        counts = {}
        for pod_set, asked in workload.asked.items():
            job = job_of_pod_set(cluster, pod_set)
            name = pod_set if job is None else job.name
            # What is given back counts from what was asked for, and not from what was granted of it.
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
    """Return whether a claim that has quota has it in another queue, or for pods that ask for something else now."""
    workload = claim.workload
    if workload.granted is None:
        return False
    if workload.queue != cluster.queue:
        return True
    asks = read_asks(workload)
    jobs = (job for job in cluster.jobs if claim.count.get(job.name) and job.replicas)
    # An annotation that somebody took away tells nothing, and no training ends for that.
    return any(asks.get(naming.dns_job(job.name), now) != now for job in jobs for now in [asks_of(job)])


def read_asks(workload: Workload) -> Mapping[str, str]:
    """Read what the pods of each podSet asked for when a claim was written; nothing where somebody edited that."""
    try:
        found = json.loads(workload.meta.annotations.get(naming.ANNOTATION_ASKS, ""))
    except ValueError:
        return {}
    if not isinstance(found, Mapping):
        return {}
    return {str(pod_set): str(of).partition(_AT_LEAST)[0] for pod_set, of in found.items()}


def _unknown(cluster: TFCluster, observed: Observed, granted: Mapping[str, int]) -> Standing:
    """Keep what runs, because it was granted once: the API can be removed, or the permission to read it."""
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
    jobs = tuple(replace(job, replicas=min(job.replicas, counts.get(job.name, 0))) for job in cluster.jobs)
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
        placement = Placement(
            start,
            start + count,
            selector,
            tuple(tolerations),
            {key: value for update in updates for key, value in update.labels.items()},
            {key: value for update in updates for key, value in update.annotations.items()},
        )
        if placement != Placement(start, start + count):
            yield placement
