"""The gangs of a cluster: the tasks that get their places together or not at all, and the PodGroup of each.

Tasks that start at once make one gang, those of a job that starts after others another.  A gang is for a start: once it
has its places, a pod that comes back, or is added, is placed for itself.  A restart of a whole job, or of all, and a
resumption are starts again, in a round of their own with a PodGroup of its own, because a PodGroup that was placed is
never scheduled together again (Kubernetes, "Gang Scheduling").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tfcluster_operator.declaration import ledger
from tfcluster_operator.declaration.spec import Job, TFCluster
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
        # NB: of the group it says how many pods lack a place, and of one pod alone what the nodes lack.
        troubles = (place.staying.trouble for place in self.unplaced if place.staying is not None)
        causes = [trouble.rpartition("UTC: ")[2] for trouble in troubles if _OF_THE_NODES in trouble]
        # NB: of the others that had room scheduler-plugins says that it was taken from them for the sake of one.
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
    """Tell whether a task gets its place with a gang."""
    if cluster.gang is None or place.stage is Stage.COMPLETED:
        return False
    return place.task.index < cluster.gang.least(place.task.job)


def awaited(gangs: Mapping[str, Gang], job: Job) -> list[Gang]:
    """Give the gangs that have their places before a task of this job, which is no member, gets a pod.

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
