"""The gangs of a cluster: the tasks that get their places together or not at all, and the PodGroup of each.

Tasks that start at once make one gang, those of a job that starts after others another.  A gang is for a start: once it
has its places, a pod that comes back, or is added, is placed for itself.  A restart of a whole job, or of all, and a
resumption are starts again, in a round of their own with a PodGroup of its own, because a PodGroup that was placed is
never scheduled together again (Kubernetes, "Gang Scheduling").

The time of spec.scheduling.gang.timeoutSeconds counts from when its tasks can start: not while they wait for other jobs
or for quota, and not in the pause before a restart.  Each start has its whole time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tfcluster_operator.declaration import ledger, reasons
from tfcluster_operator.declaration.ledger import FAILED, GaveUp, Ledger, Verdict
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.life import start_order
from tfcluster_operator.life.roster import Holder, Place, Roster, Stage
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.objects.pod_group import PodGroup, name_for, wave_of

#: What the scheduler says of the nodes begins with how many of them "are available".
_OF_THE_NODES: Final = "nodes are available"
#: What scheduler-plugins says of a pod that had room, and of whose gang another had none.
_FOR_ANOTHER: Final = "rejection in "


@dataclass(frozen=True, slots=True)
class Gang:
    """One round of one gang.

    ``members`` are the places of its tasks; ``unplaced`` those of them whose pod has no node yet.  ``begun`` says that
    a pod of the PodGroup has one: so all of them had.  ``existing`` is the PodGroup, if it is ours and stays;
    ``leaving`` says that it is being deleted and never had places: Kubernetes keeps it until no pod waits with it.
    """

    name: str
    job: str
    members: tuple[Place, ...]
    unplaced: tuple[Place, ...]
    begun: bool
    priority_class: str
    existing: PodGroup | None
    leaving: bool = False

    @property
    def placed(self) -> bool:
        """Whether its tasks have, or had, their places."""
        return not self.unplaced or self.begun or (self.existing is not None and self.existing.placed)

    @property
    def min_count(self) -> int:
        """How many pods of the PodGroup must have places at once: who has one for itself is none of them."""
        return len(self.unplaced)

    @property
    def trouble(self) -> str:
        """Why there was no room the last time the scheduler tried, in its words; "" while it has not said so."""
        if self.placed or self.existing is None or self.existing.trouble == "":
            return ""
        # Of the group it says how many pods lack a place, and of one pod alone what the nodes lack.
        troubles = (place.staying.trouble for place in self.unplaced if place.staying is not None)
        causes = [trouble.rpartition("UTC: ")[2] for trouble in troubles if _OF_THE_NODES in trouble]
        # Of the others that had room scheduler-plugins says that it was taken from them for the sake of one.
        telling = (cause for cause in causes if _FOR_ANOTHER not in cause)
        return next(telling, self.existing.trouble or next(iter(causes), ""))

    def resources(self) -> dict[str, int]:
        """Count the extended resources that its pods ask for together."""
        total: dict[str, int] = {}
        for place in self.members:
            for resource, count in place.task.job.limits().items():
                total[resource] = total.get(resource, 0) + count
        return total


def gangs_of(roster: Roster, known: ledger.Ledger) -> Mapping[str, Gang]:
    """Work out the gangs of a cluster.

    Returns:
        Each gang by the name of its PodGroup; none where none are declared, and while the cluster is suspended.
    """
    if roster.cluster.gang is None or roster.cluster.suspend or known.verdict is not None:
        return {}
    members: dict[tuple[str, str], list[Place]] = {}
    for job in roster.cluster.jobs:
        for place in roster.of(job):
            if is_member(roster.cluster, place):
                members.setdefault((name_for(roster.cluster, job, known), wave_of(job)), []).append(place)
    return {name: _gang(roster, name, wave, tuple(places), known) for (name, wave), places in members.items()}


def is_member(cluster: TFCluster, place: Place) -> bool:
    """Return whether a task gets its place with a gang."""
    if cluster.gang is None or place.stage is Stage.COMPLETED:
        return False
    return place.task.index < cluster.gang.least(place.task.job)


def awaited(gangs: Mapping[str, Gang], job: Job) -> list[Gang]:
    """Return the gangs that have their places before a task of this job, which is no member, gets a pod.

    It would hold what a gang lacks: two clusters that begin with their surplus have no room for their gangs.
    """
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
        existing=held.own,
        leaving=held.holder is Holder.LEAVING and held.object is not None and not held.object.placed,
    )


def _has_place(pod: Pod) -> bool:
    return bool(pod.node) or pod.phase != "Pending"


def waiting_since(roster: Roster, ledger: Ledger, gangs: Iterable[Gang], now: float) -> dict[str, float]:
    """Return since when each gang waits for its places, in seconds since the epoch."""
    gang = roster.cluster.gang
    if gang is None or gang.timeout is None:
        return {}
    waiting = (one.name for one in gangs if not one.placed and _may_start(roster, ledger, one, now))
    # What an operator wrote down whose clock was ahead is now.
    return {name: min(ledger.gangs.get(name) or now, now) for name in waiting}


def judge_gangs(roster: Roster, ledger: Ledger, gangs: Mapping[str, Gang], now: float) -> Verdict | GaveUp | None:
    """Decide what becomes of a cluster whose gang has found no places in time; None while there is time."""
    gang = roster.cluster.gang
    for name, since in ledger.gangs.items():
        if gang is None or gang.timeout is None or now < since + gang.timeout:
            continue
        why = gangs[name].trouble or roster.observed.lacking.get(PodGroup.KIND) or "no reason from a scheduler"
        count = len(gangs[name].members)
        tasks = f"its {count} tasks" if count > 1 else "its task"
        limit = f"spec.scheduling.gang.timeoutSeconds, {gang.timeout} s"
        message = f"gang {name}: {tasks} could not be scheduled within {limit}: {why}"
        if gang.on_timeout == "Fail":
            return Verdict(FAILED, reasons.GANG_TIMEOUT, message)
        return GaveUp(roster.cluster.generation, f"{message}; to retry, edit the TFCluster, or suspend and resume it")
    return None


def seconds_until_timeout(cluster: TFCluster, ledger: Ledger, now: float) -> float | None:
    """Return the seconds until the first gang has waited for too long; None where none waits, or there is no limit."""
    if cluster.gang is None or cluster.gang.timeout is None or not ledger.gangs:
        return None
    return min(ledger.gangs.values()) + cluster.gang.timeout - now


def _may_start(roster: Roster, ledger: Ledger, gang: Gang, now: float) -> bool:
    jobs = {place.task.job.name: place.task.job for place in gang.unplaced}.values()
    if any(ledger.of(job.name).restart_at > now for job in jobs):
        return False
    return not any(start_order.awaited_jobs(roster, job, ledger) for job in jobs)
