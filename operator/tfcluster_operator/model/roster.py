"""The roster: every object under a cluster's names or its control, looked up and classified once.

Whose an object is and what stage a task has reached is decided here and nowhere else.  Stock-taking, rollouts, start
order, views, the plan and the status read the roster; none of them looks an object up by its name or checks its owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from tfcluster_operator.model import naming
from tfcluster_operator.model.isolation import Policy, policies_of
from tfcluster_operator.model.ledger import Ledger
from tfcluster_operator.model.observed import (
    Child,
    Observed,
    ObservedConfigMap,
    ObservedDisruptionBudget,
    ObservedNetworkPolicy,
    ObservedPod,
    ObservedPodGroup,
    ObservedService,
    ObservedWorkload,
)
from tfcluster_operator.model.places import colocated
from tfcluster_operator.model.policies.ending import Ending, ending_of
from tfcluster_operator.model.queueing import Standing, Turn, is_at_work, stand
from tfcluster_operator.model.resolver_copies import is_genuine
from tfcluster_operator.model.spec import Job, Task, TFCluster
from tfcluster_operator.model.succession import Succession, is_kept, succession_of
from tfcluster_operator.model.turns import AT_ONCE, Turns, at_once


class Holder(Enum):
    """Who holds a name that the cluster needs."""

    NOBODY = "nobody"
    #: The cluster itself.
    OURS = "ours"
    #: The cluster itself, and the object is being deleted.
    LEAVING = "leaving"
    #: A deleted TFCluster of the same name, whose objects are not gone yet.
    PREDECESSOR = "predecessor"
    #: Somebody else: the object is left alone.
    FOREIGN = "foreign"


class Stage(Enum):
    """How far a task is."""

    MISSING = "missing"
    #: Its pod's name is held by somebody else.
    FOREIGN = "foreign"
    #: Its pod's name is held by a pod of a deleted TFCluster of the same name.
    PREDECESSOR = "predecessor"
    #: Its pod is being deleted.
    TERMINATING = "terminating"
    STARTING = "starting"
    #: Its pod runs and is ready.
    SERVING = "serving"
    #: Its pod's program is over.
    ENDED = "ended"
    #: It has ended with exit code 0 and is not run again, whatever became of its pod.
    COMPLETED = "completed"

    # NB: Enum's own is written in Python, and a pass over thousands of tasks looks stages up many times for each.
    __hash__ = object.__hash__


class Place(NamedTuple):
    """One declared task, and its pod, or whoever holds the name that its pod is to have.

    ``ending`` is how our pod's program ended, None while it runs or where its end says nothing.  ``outdated`` says that
    our pod was made from another template than the present one.  ``kept`` are pods of the task that have failed and are
    its pods no longer, the oldest first: only their logs are of use.  ``settled`` says that our pod is at work and that
    nothing about it alone asks for anything: what still may are its view and its incarnation.
    """

    task: Task
    name: str
    stage: Stage
    pod: ObservedPod | None = None
    ending: Ending | None = None
    outdated: bool = False
    kept: tuple[ObservedPod, ...] = ()
    settled: bool = False

    @property
    def own(self) -> ObservedPod | None:
        """The pod, if it is ours; it may be on its way out."""
        return None if self.stage in {Stage.FOREIGN, Stage.PREDECESSOR} else self.pod

    @property
    def staying(self) -> ObservedPod | None:
        """The pod, if it is ours and nobody has asked for its deletion."""
        pod = self.own
        return None if pod is None or pod.meta.terminating else pod

    @property
    def serving(self) -> bool:
        """Whether the task does its work now."""
        return self.stage is Stage.SERVING


_Kind = TypeVar(
    "_Kind",
    ObservedService,
    ObservedConfigMap,
    ObservedNetworkPolicy,
    ObservedDisruptionBudget,
    ObservedPodGroup,
    ObservedWorkload,
)


@dataclass(frozen=True, slots=True)
class Holding(Generic[_Kind]):
    """A name of an object other than a pod that the cluster needs, who holds it, and with what."""

    name: str
    holder: Holder
    object: _Kind | None = None

    @property
    def own(self) -> _Kind | None:
        """The object, if it is ours and stays."""
        return self.object if self.holder is Holder.OURS else None


@dataclass(frozen=True, slots=True)
class Roster:
    """Everything that exists for one cluster, classified.

    ``cluster`` is what is declared, as far as its queue has granted it, and ``declared`` all of it; ``standing`` says
    how it stands in the queue, ``claims`` are the Workloads by their names, and ``at_work`` the pods of a cluster in a
    queue that take resources.

    ``places`` has every declared task by job, in the order of the indices. ``surplus`` are our pods that no declared
    task has a claim to; ``leaving`` are the pods that are being deleted and are ours, or hold a name of ours for a
    predecessor. ``policies`` are the NetworkPolicies that the isolation needs, and who holds their names; ``unsettled``
    names those of them that are not there, or not as they should be. ``unneeded`` are our Services and ConfigMaps of
    names that nothing declared needs. ``resolver`` is the copy for the whole namespace: OURS if its bytes are right.
    ``unneeded_policies`` are our NetworkPolicies that the isolation does not need. ``budgets`` tell, by job, who holds
    the name of its PodDisruptionBudget; ``unneeded_budgets`` are ours that no job declares. ``groups`` are the
    PodGroups, by name; ``no_groups`` says why there can be none, "" where there can. ``mounted`` names the copies that
    a pod of ours mounts.
    """

    cluster: TFCluster
    declared: TFCluster
    standing: Standing
    places: Mapping[str, tuple[Place, ...]]
    service: Holding[ObservedService]
    views: Mapping[str, Holding[ObservedConfigMap]]
    resolver: Holding[ObservedConfigMap] | None = None
    policies: tuple[tuple[Policy, Holding[ObservedNetworkPolicy]], ...] = ()
    unsettled: tuple[str, ...] = ()
    surplus: tuple[ObservedPod, ...] = ()
    leaving: tuple[ObservedPod, ...] = ()
    unneeded: tuple[ObservedService | ObservedConfigMap, ...] = ()
    unneeded_policies: tuple[ObservedNetworkPolicy, ...] = ()
    budgets: Mapping[str, Holding[ObservedDisruptionBudget]] = field(default_factory=dict)
    unneeded_budgets: tuple[ObservedDisruptionBudget, ...] = ()
    groups: Mapping[str, Holding[ObservedPodGroup]] = field(default_factory=dict)
    no_groups: str = ""
    claims: Mapping[str, Holding[ObservedWorkload]] = field(default_factory=dict)
    at_work: tuple[ObservedPod, ...] = ()
    mounted: frozenset[str] = frozenset()
    uids: frozenset[str] = frozenset()

    def of(self, job: Job) -> tuple[Place, ...]:
        """Give the places of one job."""
        return self.places[job.name]

    def open(self, job: Job) -> Iterator[Place]:
        """Give the places of one job that have not completed."""
        return (place for place in self.places[job.name] if place.stage is not Stage.COMPLETED)

    def staying(self) -> Iterator[ObservedPod]:
        """Give every pod of ours, declared or not, that nobody has asked to go."""
        for places in self.places.values():
            for place in places:
                if (pod := place.staying) is not None:
                    yield pod
        yield from self.surplus

    def kept(self) -> Iterator[ObservedPod]:
        """Give every failed pod that is kept and that nobody has asked to go."""
        for places in self.places.values():
            for place in places:
                yield from (pod for pod in place.kept if not pod.meta.terminating)

    def completed_by(self, ledger: Ledger) -> Roster:
        """Give the roster with what the ledger tells: which tasks have completed, and which edition this is."""
        changed: dict[str, tuple[Place, ...]] = {}
        for job in self.cluster.jobs:
            if completed := ledger.of(job.name).completed:
                changed[job.name] = tuple(
                    place._replace(stage=Stage.COMPLETED, pod=place.own) if place.task.index in completed else place
                    for place in self.places[job.name]
                )
        cluster = self.cluster
        if ledger.regrants != cluster.regrants:
            cluster = replace(cluster, regrants=ledger.regrants)
        if changed or cluster is not self.cluster:
            return replace(self, cluster=cluster, places={**self.places, **changed})
        return self


def call_roll(
    cluster: TFCluster,
    observed: Observed,
    *,
    resolver: str = "",
    before: Roster | None = None,
    standing: Standing | None = None,
) -> Roster:
    """Classify everything that exists for one cluster.

    Args:
        cluster: the declaration.
        observed: everything that exists under its names or its control.
        resolver: the name of the ConfigMap that delivers the resolver, "" where none is delivered.
        before: an earlier roster of the cluster, as this function gave it; a task whose pod is the same object as then
            is not classified again.
        standing: how the cluster stands in its queue, where that was found out before and must not change meanwhile.
    """
    return at_once(roll_in_turns(cluster, observed, resolver=resolver, before=before, standing=standing))


def roll_in_turns(
    cluster: TFCluster,
    observed: Observed,
    *,
    resolver: str = "",
    before: Roster | None = None,
    standing: Standing | None = None,
) -> Turns[Roster]:
    """Classify everything as :func:`call_roll` does, and pause now and then."""
    declared, standing = cluster, standing or stand(cluster, observed)
    cluster = standing.cluster
    later = _later_pods(cluster, observed)
    places = {}
    for job in cluster.jobs:
        places[job.name] = yield from _places(cluster, job, observed, later, _places_before(before, cluster, job))
    yield
    with_places = {place.name for of_job in places.values() for place in of_job}
    kept = {pod.meta.name for of_job in places.values() for place in of_job if place.kept for pod in place.kept}
    surplus, leaving, mounted, uids = [], [], set(), set()
    for name, pod in observed.pods.items():
        meta = pod.meta
        ours = meta.owner_uid == cluster.uid
        # NB: a kept pod mounts nothing any more, and its failure is counted and need not be remembered.
        if ours and name not in kept:
            uids.add(meta.uid)
            mounted.add(pod.resolver)
            if name not in with_places and not meta.terminating:
                surplus.append(pod)
        if meta.terminating and (ours or holder_of(cluster, pod) is Holder.PREDECESSOR):
            leaving.append(pod)
    yield
    service = _hold(cluster, naming.service_name(cluster.name), observed.services)
    views = {
        job.name: _hold(cluster, naming.view_name(cluster.name, job.name), observed.config_maps) for job in cluster.jobs
    }
    needed = {resolver, *(holding.name for holding in views.values())}
    # NB: whoever made a TFCluster the owner of a copy that all share: it is not that one's to delete.
    config_maps = [
        one
        for one in _ours(cluster, observed.config_maps.values())
        if one.meta.name not in needed and not naming.is_of_the_resolver(one.meta.name)
    ]
    services = [one for one in _ours(cluster, observed.services.values()) if one.meta.name != service.name]
    policies = tuple(
        (one, _hold(cluster, one.name, observed.network_policies))
        for one in policies_of(cluster, observed.other_policies)
    )
    isolating = {policy.name for policy, _ in policies}
    not_isolating = [
        one for one in _ours(cluster, observed.network_policies.values()) if one.meta.name not in isolating
    ]
    budgets = {
        job.name: _hold(cluster, naming.budget_name(cluster.name, job.name), observed.budgets)
        for job in cluster.jobs
        if job.min_available is not None
    }
    budgeted = {held.name for held in budgets.values()}
    queued = standing.turn is not Turn.FREE
    return Roster(
        cluster=cluster,
        declared=declared,
        standing=standing,
        places=places,
        service=service,
        views=views,
        resolver=_hold_copy(resolver, observed.config_maps) if resolver else None,
        policies=policies,
        unsettled=tuple(one.name for one, held in policies if held.own is None or held.own.digest != one.digest),
        surplus=tuple(surplus),
        leaving=tuple(leaving),
        unneeded=(*services, *config_maps),
        unneeded_policies=tuple(not_isolating),
        budgets=budgets,
        unneeded_budgets=tuple(
            one for one in _ours(cluster, observed.budgets.values()) if one.meta.name not in budgeted
        ),
        groups={name: Holding(name, holder_of(cluster, one), one) for name, one in observed.groups.items()},
        no_groups=observed.no_groups,
        claims={name: Holding(name, holder_of(cluster, one), one) for name, one in observed.workloads.items()},
        at_work=tuple(
            pod for pod in observed.pods.values() if queued and pod.meta.owner_uid == cluster.uid and is_at_work(pod)
        ),
        mounted=frozenset(mounted),
        uids=frozenset(uids),
    )


def holder_of(cluster: TFCluster, child: Child) -> Holder:
    """Tell whose an object is, from the cluster's point of view."""
    meta = child.meta
    if meta.owner_uid == cluster.uid:
        return Holder.LEAVING if meta.terminating else Holder.OURS
    if meta.owner_uid and meta.owner_name == cluster.name:
        return Holder.PREDECESSOR
    return Holder.FOREIGN


def _later_pods(cluster: TFCluster, observed: Observed) -> Mapping[str, Sequence[ObservedPod]]:
    """Give the pods of tasks that have had one before, by the name of the task's first pod."""
    later = defaultdict(list)
    firsts: set[str] = set()
    firsts.update(*(naming.first_pod_names(cluster.name, job.name, job.replicas) for job in cluster.jobs))
    for name in observed.pods.keys() - firsts:
        first, number = naming.first_pod_name(name)
        if number:
            later[first].append(observed.pods[name])
    return later


def _places_before(before: Roster | None, cluster: TFCluster, job: Job) -> Sequence[Place]:
    """Give the places of a job in an earlier roster, where they were classified by the same declaration."""
    if before is None or before.cluster.uid != cluster.uid or before.cluster.job(job.name) != job:
        return ()
    return before.places[job.name]


def _places(
    cluster: TFCluster,
    job: Job,
    observed: Observed,
    later: Mapping[str, Sequence[ObservedPod]],
    before: Sequence[Place],
) -> Turns[tuple[Place, ...]]:
    places = []
    pods = observed.pods
    labels = {**naming.job_labels(cluster.name, job.name), **colocated(cluster, job)}
    for index, first in enumerate(naming.first_pod_names(cluster.name, job.name, job.replicas)):
        if index % AT_ONCE == AT_ONCE - 1:
            yield
        pod, known = pods.get(first), before[index] if before else None
        if known is not None and known.pod is pod and known.name == first and not known.kept and first not in later:
            places.append(known)
        else:
            place = _place(cluster, Task(job, index), first, pods, later.get(first, ()))
            places.append(place._replace(settled=True) if _is_settled(place, labels) else place)
    return tuple(places)


def _is_settled(place: Place, labels: Mapping[str, str]) -> bool:
    pod = place.pod
    if pod is None or place.stage not in _AT_WORK or place.outdated or pod.surplus_since:
        return False
    has, has_place = pod.meta.labels, pod.node or pod.phase != "Pending"
    if not has_place or naming.LABEL_KEPT in has or has.get(naming.LABEL_TASK_INDEX) != str(place.task.index):
        return False
    return has.items() >= labels.items()


def _place(
    cluster: TFCluster, task: Task, first: str, pods: Mapping[str, ObservedPod], later: Sequence[ObservedPod]
) -> Place:
    """Classify one task; ``first`` names its first pod, ``later`` are its later ones."""
    name, pod, kept = Succession(first, pods.get(first))
    if later or (pod is not None and is_kept(pod)):
        found = [*([pod] if pod is not None else ()), *later]
        name, pod, kept = succession_of(first, (one for one in found if one.meta.owner_uid == cluster.uid))
        if pod is None:
            pod = pods.get(name) or next((one for one in found if _is_at_our_address(cluster, one)), None)
    if pod is None:
        return Place(task, name, Stage.MISSING, kept=kept)
    if pod.meta.owner_uid != cluster.uid:
        return Place(task, pod.meta.name, _NOT_OURS[holder_of(cluster, pod)], pod, kept=kept)
    outdated = pod.meta.annotations.get(naming.ANNOTATION_TEMPLATE_HASH) != task.job.template_hash
    stage = _stage_of(pod)
    ending = None if stage in _AT_WORK else ending_of(pod)
    return Place(task, name, stage, pod, ending, outdated, kept)


def _is_at_our_address(cluster: TFCluster, pod: ObservedPod) -> bool:
    """Tell whether a pod of a deleted TFCluster of the same name may still work, at the address of a task of ours."""
    return holder_of(cluster, pod) is Holder.PREDECESSOR and pod.phase not in {"Succeeded", "Failed"}


_AT_WORK: Final = (Stage.SERVING, Stage.STARTING)
_NOT_OURS: Final = {Holder.PREDECESSOR: Stage.PREDECESSOR, Holder.FOREIGN: Stage.FOREIGN}


def _stage_of(pod: ObservedPod) -> Stage:
    if pod.meta.terminating:
        return Stage.TERMINATING
    if pod.ended:
        return Stage.ENDED
    return Stage.SERVING if pod.ready and pod.phase == "Running" else Stage.STARTING


def _hold(cluster: TFCluster, name: str, among: Mapping[str, _Kind]) -> Holding[_Kind]:
    found = among.get(name)
    return Holding(name, Holder.NOBODY) if found is None else Holding(name, holder_of(cluster, found), found)


def _hold_copy(name: str, among: Mapping[str, ObservedConfigMap]) -> Holding[ObservedConfigMap]:
    """Tell whose the name of a copy of the resolver is: it is nobody's property, so its bytes alone decide."""
    found = among.get(name)
    if found is None:
        return Holding(name, Holder.NOBODY)
    if not is_genuine(found):
        return Holding(name, Holder.FOREIGN, found)
    return Holding(name, Holder.LEAVING if found.meta.terminating else Holder.OURS, found)


def _ours(cluster: TFCluster, among: Iterable[_Kind]) -> Iterator[_Kind]:
    return (one for one in among if holder_of(cluster, one) is Holder.OURS)
