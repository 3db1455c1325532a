"""The roster: every object under a cluster's names or its control, looked up and classified once.

Only this module decides who owns an object and what stage a task has reached.  The ledger update, rollouts, start
order, views, the plan and the status read the roster; none of them looks an object up by its name or checks its owner.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import Job, Task, TFCluster
from tfcluster_operator.life.queueing import Standing, Turn, is_at_work, stand
from tfcluster_operator.objects.base import Child
from tfcluster_operator.objects.config_map import ConfigMap
from tfcluster_operator.objects.kinds import Observed
from tfcluster_operator.objects.network_policy import NetworkPolicy, Policy, policies_of
from tfcluster_operator.objects.pod import Ending, Pod, ending_of
from tfcluster_operator.objects.service import Service


class Holder(Enum):
    """The holder of a name that the cluster needs."""

    NOBODY = "nobody"
    #: This cluster.
    OURS = "ours"
    #: This cluster, and the object is being deleted.
    LEAVING = "leaving"
    #: A deleted TFCluster of the same name, whose objects still exist.
    PREDECESSOR = "predecessor"
    #: Another owner: the object is left alone.
    FOREIGN = "foreign"


class Stage(Enum):
    """The stage of a task."""

    MISSING = "missing"
    #: Another owner holds its pod's name.
    FOREIGN = "foreign"
    #: A pod of a deleted TFCluster of the same name holds its pod's name.
    PREDECESSOR = "predecessor"
    #: Its pod is being deleted.
    TERMINATING = "terminating"
    STARTING = "starting"
    #: Its pod runs and is Ready.
    SERVING = "serving"
    #: Its pod's program has ended.
    ENDED = "ended"
    #: It has ended with exit code 0 and is not run again, whether its pod still exists or not.
    COMPLETED = "completed"

    # Enum's own hash is written in Python, and a reconcile over thousands of tasks hashes stages many times for each.
    __hash__ = object.__hash__


class Place(NamedTuple):
    """One declared task, and its pod, or the pod that holds the name that its pod should have."""

    task: Task
    name: str
    stage: Stage
    pod: Pod | None = None
    ending: Ending | None = None
    outdated: bool = False
    #: Failed pods of the task that are kept for their logs only, the oldest first.
    kept: tuple[Pod, ...] = ()
    #: Our pod runs, and the pod alone does not require an action; its view and its incarnation still can.
    settled: bool = False

    @property
    def own(self) -> Pod | None:
        """The pod, if it is ours; it might be terminating."""
        return None if self.stage in {Stage.FOREIGN, Stage.PREDECESSOR} else self.pod

    @property
    def staying(self) -> Pod | None:
        """The pod, if it is ours and is not being deleted."""
        pod = self.own
        return None if pod is None or pod.meta.terminating else pod

    @property
    def serving(self) -> bool:
        """Whether the task runs and is ready."""
        return self.stage is Stage.SERVING


_Kind = TypeVar("_Kind", bound=Child)


class Holding(NamedTuple, Generic[_Kind]):
    """The holder of a name that the cluster needs; ``own`` is the object, if it is ours and is not being deleted."""

    kind: str
    name: str
    holder: Holder
    object: _Kind | None = None
    own: _Kind | None = None


@dataclass(frozen=True, slots=True)
class Roster:
    """Everything that exists for one cluster, classified; ``cluster`` is the admitted part of what is ``declared``."""

    cluster: TFCluster
    declared: TFCluster
    standing: Standing
    places: Mapping[str, tuple[Place, ...]]
    observed: Observed
    #: The name of the resolver's ConfigMap to mount, or "", and of those that our pods mount.
    resolver: str = ""
    mounted: frozenset[str] = frozenset()
    policies: tuple[Policy, ...] = ()
    #: The names of the NetworkPolicies that do not exist or differ.
    unsettled: tuple[str, ...] = ()
    #: Our pods without a declared task.
    surplus: tuple[Pod, ...] = ()
    #: Terminating pods that are ours, or that hold one of our names for a predecessor.
    leaving: tuple[Pod, ...] = ()
    #: The pods of a cluster in a queue that use resources.
    at_work: tuple[Pod, ...] = ()
    uids: frozenset[str] = frozenset()

    def held(self, kind: type[_Kind], name: str) -> Holding[_Kind]:
        """Return the holder of a name that the cluster needs for an object of this kind."""
        return _hold(self.cluster, kind, name, self.observed)

    def ours(self, kind: type[_Kind]) -> list[_Kind]:
        """Return every object of a kind that is ours and is not being deleted."""
        found = self.observed.of(kind).values()
        return [one for one in found if holder_of(self.cluster, one) is Holder.OURS]

    @property
    def service(self) -> Holding[Service]:
        """The holder of the headless Service's name."""
        return self.held(Service, self.cluster.name)

    def views(self, job: Job) -> Holding[ConfigMap]:
        """Return the holder of the name of the ConfigMap with a job's views."""
        return self.held(ConfigMap, naming.view_name(self.cluster.name, job.name))

    @property
    def copy(self) -> Holding[ConfigMap] | None:
        """The resolver's ConfigMap: OURS if its content is right, because clusters share it and none owns it."""
        found = self.observed.of(ConfigMap).get(self.resolver)
        if not self.resolver or found is None:
            return Holding(ConfigMap.KIND, self.resolver, Holder.NOBODY) if self.resolver else None
        right = Holder.LEAVING if found.meta.terminating else Holder.OURS
        return _holding(ConfigMap, self.resolver, right if found.is_genuine_copy else Holder.FOREIGN, found)

    def of(self, job: Job) -> tuple[Place, ...]:
        """Return the places of one job."""
        return self.places[job.name]

    def open(self, job: Job) -> Iterator[Place]:
        """Return the places of one job that have not completed."""
        return (place for place in self.places[job.name] if place.stage is not Stage.COMPLETED)

    def staying(self) -> Iterator[Pod]:
        """Return every pod of ours, declared or not, that is not being deleted."""
        for places in self.places.values():
            for place in places:
                if (pod := place.staying) is not None:
                    yield pod
        yield from self.surplus

    def kept(self) -> Iterator[Pod]:
        """Return every failed pod that is kept and not being deleted."""
        for places in self.places.values():
            for place in places:
                yield from (pod for pod in place.kept if not pod.meta.terminating)

    def completed_by(self, ledger: Ledger) -> "Roster":
        """Return the roster with what the ledger adds: which tasks have completed, and the edition."""
        changed: dict[str, tuple[Place, ...]] = {}
        for job in self.cluster.jobs:
            if completed := ledger.of(job.name).completed:
                changed[job.name] = tuple(
                    place._replace(stage=Stage.COMPLETED, pod=place.own) if place.task.index in completed else place
                    for place in self.places[job.name]
                )
        if changed or ledger.regrants != self.cluster.ledger.regrants:
            cluster = replace(self.cluster, ledger=ledger)
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
    """Classify everything that exists for one cluster."""
    # A task whose pod is the same object as in the roster ``before`` is not classified again.  ``standing`` is given
    # where the state in the queue must not change in the meantime.
    declared, standing = cluster, standing or stand(cluster, observed)
    cluster = standing.cluster
    later = _later_pods(cluster, observed)
    places = {}
    for job in cluster.jobs:
        places[job.name] = _places(cluster, job, observed, later, _places_before(before, cluster, job))
    with_places = {place.name for of_job in places.values() for place in of_job}
    kept = {pod.meta.name for of_job in places.values() for place in of_job if place.kept for pod in place.kept}
    surplus, leaving, mounted, uids = [], [], set(), set()
    for name, pod in observed.pods.items():
        meta = pod.meta
        ours = meta.owner_uid == cluster.uid
        # A kept pod does not need its volumes, and its failure is counted already.
        if ours and name not in kept:
            uids.add(meta.uid)
            mounted.add(pod.resolver)
            if name not in with_places and not meta.terminating:
                surplus.append(pod)
        if meta.terminating and (ours or holder_of(cluster, pod) is Holder.PREDECESSOR):
            leaving.append(pod)
    policies = policies_of(cluster, observed.other_policies)
    held = [(one, _hold(cluster, NetworkPolicy, one.name, observed).own) for one in policies]
    queued = standing.turn is not Turn.FREE
    return Roster(
        cluster=cluster,
        declared=declared,
        standing=standing,
        places=places,
        observed=observed,
        resolver=resolver,
        policies=policies,
        unsettled=tuple(one.name for one, own in held if own is None or own.digest != one.digest),
        surplus=tuple(surplus),
        leaving=tuple(leaving),
        at_work=tuple(
            pod for pod in observed.pods.values() if queued and pod.meta.owner_uid == cluster.uid and is_at_work(pod)
        ),
        mounted=frozenset(mounted),
        uids=frozenset(uids),
    )


def holder_of(cluster: TFCluster, child: Child) -> Holder:
    """Return the holder of an object, from the cluster's point of view."""
    meta = child.meta
    if meta.owner_uid == cluster.uid:
        return Holder.LEAVING if meta.terminating else Holder.OURS
    if meta.owner_uid and meta.owner_name == cluster.name:
        return Holder.PREDECESSOR
    return Holder.FOREIGN


def _later_pods(cluster: TFCluster, observed: Observed) -> Mapping[str, Sequence[Pod]]:
    """Return the later pods of tasks, by the name of the task's first pod."""
    later = defaultdict(list)
    firsts: set[str] = set()
    firsts.update(*(naming.first_pod_names(cluster.name, job.name, job.replicas) for job in cluster.jobs))
    for name in observed.pods.keys() - firsts:
        first, number = naming.first_pod_name(name)
        if number:
            later[first].append(observed.pods[name])
    return later


def _places_before(before: Roster | None, cluster: TFCluster, job: Job) -> Sequence[Place]:
    """Return the places of a job in an earlier roster, if they were classified by the same declaration."""
    if before is None or before.cluster.uid != cluster.uid or before.cluster.job(job.name) != job:
        return ()
    return before.places[job.name]


def _places(
    cluster: TFCluster,
    job: Job,
    observed: Observed,
    later: Mapping[str, Sequence[Pod]],
    before: Sequence[Place],
) -> tuple[Place, ...]:
    places = []
    pods = observed.pods
    labels = {**naming.job_labels(cluster.name, job.name), **cluster.colocated(job)}
    for index, first in enumerate(naming.first_pod_names(cluster.name, job.name, job.replicas)):
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


def _place(cluster: TFCluster, task: Task, first: str, pods: Mapping[str, Pod], later: Sequence[Pod]) -> Place:
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


def _is_at_our_address(cluster: TFCluster, pod: Pod) -> bool:
    """Return whether a pod of a deleted TFCluster of the same name might still run at the address of our task."""
    return holder_of(cluster, pod) is Holder.PREDECESSOR and pod.phase not in {"Succeeded", "Failed"}


_AT_WORK: Final = (Stage.SERVING, Stage.STARTING)
_NOT_OURS: Final = {Holder.PREDECESSOR: Stage.PREDECESSOR, Holder.FOREIGN: Stage.FOREIGN}


def _stage_of(pod: Pod) -> Stage:
    if pod.meta.terminating:
        return Stage.TERMINATING
    if pod.ended:
        return Stage.ENDED
    return Stage.SERVING if pod.ready and pod.phase == "Running" else Stage.STARTING


def _hold(cluster: TFCluster, kind: type[_Kind], name: str, observed: Observed) -> Holding[_Kind]:
    found = observed.of(kind).get(name)
    return _holding(kind, name, Holder.NOBODY if found is None else holder_of(cluster, found), found)


def _holding(kind: type[_Kind], name: str, holder: Holder, found: _Kind | None) -> Holding[_Kind]:
    return Holding(kind.KIND, name, holder, found, found if holder is Holder.OURS else None)


class Succession(NamedTuple):
    """The pods of one task that are ours: the current one (or the name of the one to create), and kept failed ones."""

    # A pod cannot be renamed, and a kept pod occupies its name: the next one has another name and the same hostname.
    # A pod that lost its label is kept all the same once a later pod exists.

    name: str
    pod: Pod | None = None
    kept: tuple[Pod, ...] = ()


def succession_of(first: str, own: Iterable[Pod]) -> Succession:
    """Order the pods of one task."""
    pods = sorted(((naming.first_pod_name(pod.meta.name)[1], pod) for pod in own), key=lambda one: one[0])
    speaking = [(number, pod) for number, pod in pods if not is_kept(pod)]
    newest, pod = speaking[-1] if speaking else (-1, None)
    kept = tuple(one for number, one in pods if is_kept(one) or (number < newest and _can_be_kept(one)))
    return Succession(name_after(first, kept) if pod is None else pod.meta.name, pod, kept)


def is_kept(pod: Pod) -> bool:
    """Return whether a pod has failed and is marked as kept."""
    return naming.LABEL_KEPT in pod.meta.labels and _can_be_kept(pod)


def name_after(first: str, before: Iterable[Pod]) -> str:
    """Return the name of the pod that follows these kept pods; without kept pods, the first name."""
    numbers = [naming.first_pod_name(pod.meta.name)[1] for pod in before]
    return naming.later_pod_name(first, 1 + max(numbers)) if numbers else first


def _can_be_kept(pod: Pod) -> bool:
    # A pod whose sidecar still runs holds its resources and its address.
    return pod.phase == "Failed"
