"""The gangs of a cluster: the tasks that are scheduled together or not at all, and the PodGroup of each gang.

Tasks that start together form one gang; a job that starts after others has its own gang.  A gang applies to one start:
once its pods have nodes, a re-created or added pod is scheduled on its own.  A restart of a whole job, or of all jobs,
and a resumption are new starts: each has a new round with its own PodGroup, because Kubernetes never schedules a
PodGroup together a second time (Kubernetes, "Gang Scheduling").

spec.scheduling.gang.timeoutSeconds counts from when the tasks can start: time spent waiting for other jobs or for
quota, and the back-off before a restart, do not count.  Each start has the whole time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tfcluster_operator.declaration import ledger, reasons
from tfcluster_operator.declaration.ledger import FAILED, GaveUp, Ledger, Verdict
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.life.roster import Holder, Place, Roster, Stage
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.objects.pod_group import PodGroup, name_for, wave_of

#: Part of the scheduler's message about nodes, which begins with how many of them "are available".
_OF_THE_NODES: Final = "nodes are available"
#: Part of scheduler-plugins' message for a pod that has a node while another pod of its gang has not.
_FOR_ANOTHER: Final = "rejection in "


@dataclass(frozen=True, slots=True)
class Gang:
    """One round of one gang: its tasks, those without a node yet, and the PodGroup, if it is ours and stays."""

    name: str
    job: str
    members: tuple[Place, ...]
    unplaced: tuple[Place, ...]
    #: A pod of the PodGroup has a node, so all of them had one.
    begun: bool
    priority_class: str
    #: The topology key of the domain that its tasks must share, or "".
    topology: str
    existing: PodGroup | None
    #: It is being deleted and was never scheduled; Kubernetes keeps it until none of its pods is pending.
    leaving: bool = False

    @property
    def placed(self) -> bool:
        """Whether its tasks have, or had, nodes."""
        return not self.unplaced or self.begun or (self.existing is not None and self.existing.placed)

    @property
    def min_count(self) -> int:
        """The number of pods in the PodGroup that are scheduled together; pods scheduled on their own do not count."""
        return len(self.unplaced)

    @property
    def trouble(self) -> str:
        """The scheduler's latest message on why the gang does not fit, or ""."""
        if self.placed or self.existing is None or self.existing.trouble == "":
            return ""
        # The group's message has the number of pods without a node; a pod's message has what the nodes lack.
        troubles = (place.staying.trouble for place in self.unplaced if place.staying is not None)
        causes = [trouble.rpartition("UTC: ")[2] for trouble in troubles if _OF_THE_NODES in trouble]
        # scheduler-plugins writes to pods that fitted that they were rejected because of another pod: skip those.
        telling = (cause for cause in causes if _FOR_ANOTHER not in cause)
        return next(telling, self.existing.trouble or next(iter(causes), ""))

    def resources(self) -> dict[str, int]:
        """Count the extended resources that its pods request together."""
        total: dict[str, int] = {}
        for place in self.members:
            for resource, count in place.task.job.limits.items():
                total[resource] = total.get(resource, 0) + count
        return total


def gangs_of(roster: Roster, known: ledger.Ledger) -> Mapping[str, Gang]:
    """Return the gangs of a cluster by the name of their PodGroup; none while it is suspended."""
    if roster.cluster.gang is None or roster.cluster.suspend or known.verdict is not None:
        return {}
    members: dict[tuple[str, str], list[Place]] = {}
    for job in roster.cluster.jobs:
        for place in roster.of(job):
            if is_member(roster.cluster, place):
                members.setdefault((name_for(roster.cluster, job, known), wave_of(job)), []).append(place)
    return {name: _gang(roster, name, wave, tuple(places), known) for (name, wave), places in members.items()}


def is_member(cluster: TFCluster, place: Place) -> bool:
    """Return whether a task is scheduled with a gang."""
    if cluster.gang is None or place.stage is Stage.COMPLETED:
        return False
    return place.task.index < cluster.gang.least(place.task.job)


def awaited(gangs: Mapping[str, Gang], job: Job) -> list[Gang]:
    """Return the gangs that must be scheduled before a task of this job, which is not a member, gets a pod."""
    # Its pod would take resources that a gang lacks: two clusters that start with such pods could block each other.
    return [gang for gang in gangs.values() if gang.job in {"", wave_of(job)} and not gang.placed]


def _gang(roster: Roster, name: str, wave: str, members: tuple[Place, ...], known: ledger.Ledger) -> Gang:
    unplaced, begun = [], False
    for place in members:
        pod = place.staying
        if pod is None or not _has_place(pod) or pod.incarnation != known.of(place.task.job.name).incarnation:
            unplaced.append(place)
        elif pod.group == name:
            begun = True
    held = roster.held(PodGroup, name)
    return Gang(
        name=name,
        job=wave,
        members=members,
        unplaced=tuple(unplaced),
        begun=begun,
        priority_class=members[0].task.job.of_template("priorityClassName"),
        topology=_topology([place.task.job for place in members]),
        existing=held.own,
        leaving=held.holder is Holder.LEAVING and held.object is not None and not held.object.placed,
    )


def _topology(jobs: list[Job]) -> str:
    found = {"" if (near := job.colocation) is None or near.may_be_elsewhere else near.topology_key for job in jobs}
    return found.pop() if len(found) == 1 else ""


def _has_place(pod: Pod) -> bool:
    return bool(pod.node) or pod.phase != "Pending"


def waiting_since(roster: Roster, ledger: Ledger, gangs: Iterable[Gang], now: float) -> dict[str, float]:
    """Return since when each gang waits for nodes, in seconds since the epoch."""
    gang = roster.cluster.gang
    if gang is None or gang.timeout_seconds is None:
        return {}
    waiting = (one.name for one in gangs if not one.placed and _may_start(roster, ledger, one, now))
    # A time in the future, written by an operator whose clock was ahead, counts as now.
    return {name: min(ledger.gangs.get(name) or now, now) for name in waiting}


def judge_gangs(roster: Roster, ledger: Ledger, gangs: Mapping[str, Gang], now: float) -> Verdict | GaveUp | None:
    """Decide what to do with a cluster whose gang was not scheduled in time; None before the timeout."""
    gang = roster.cluster.gang
    for name, since in ledger.gangs.items():
        if gang is None or gang.timeout_seconds is None or now < since + gang.timeout_seconds:
            continue
        why = gangs[name].trouble or roster.observed.lacking.get(PodGroup.KIND) or "no reason from a scheduler"
        count = len(gangs[name].members)
        tasks = f"its {count} tasks" if count > 1 else "its task"
        limit = f"spec.scheduling.gang.timeoutSeconds, {gang.timeout_seconds} s"
        message = f"gang {name}: {tasks} could not be scheduled within {limit}: {why}"
        if gang.on_timeout == "Fail":
            return Verdict(FAILED, reasons.GANG_TIMEOUT, message)
        return GaveUp(roster.cluster.generation, f"{message}; to retry, edit the TFCluster, or suspend and resume it")
    return None


def seconds_until_timeout(cluster: TFCluster, ledger: Ledger, now: float) -> float | None:
    """Return the seconds until the first gang times out, or None."""
    if cluster.gang is None or cluster.gang.timeout_seconds is None or not ledger.gangs:
        return None
    return min(ledger.gangs.values()) + cluster.gang.timeout_seconds - now


def _may_start(roster: Roster, ledger: Ledger, gang: Gang, now: float) -> bool:
    jobs = {place.task.job.name: place.task.job for place in gang.unplaced}.values()
    if any(ledger.of(job.name).restart_at > now for job in jobs):
        return False
    return not any(awaited_jobs(roster, job, ledger) for job in jobs)


def awaited_jobs(roster: Roster, job: Job, ledger: Ledger) -> list[str]:
    """Return the jobs that a job waits for, as "ps (1 of 2 ready)"; none if it can start or has started."""
    record = ledger.of(job.name)
    if record.begun or record.started or record.failing:
        return []
    waiting = []
    for name in job.start_after:
        earlier = roster.cluster.job(name)
        if earlier is None:
            continue
        incarnation = ledger.of(name).incarnation
        ready = sum(_is_ready(place, incarnation) for place in roster.of(earlier))
        if ready < earlier.replicas:
            waiting.append(f"{name} ({ready} of {earlier.replicas} ready)")
    return waiting


def _is_ready(place: Place, incarnation: int) -> bool:
    if place.stage is Stage.COMPLETED:
        return True
    return place.serving and place.pod is not None and place.pod.incarnation == incarnation
