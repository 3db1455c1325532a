"""What exists, as plain values: the second argument of every decision.

These are narrow on purpose: an operator of 2,000 tasks keeps a few hundred bytes a pod, not the 30 kB that the whole
object takes.  A field is here because a decision reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, get_args

from tfcluster_operator.model import naming

#: An annotation that anyone can write is believed to be a number only below this many digits.
_LONGEST_NUMBER: Final = 12
#: The API server's clock is believed no further back (seconds) than this.
_BELIEVED: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Meta:
    """The identity of an object: whose it is, which incarnation, and whether it is on its way out.

    ``owner_uid`` is the UID of its controller, ``owner_name`` that controller's name if it is a TFCluster; "" if not.
    ``grace`` is how many seconds its containers get to end, 0 while nobody asked for its deletion; ``asked_to_go_at``
    is when somebody did, by the API server's clock, in seconds since the epoch.  ``finalizers`` keep an object whose
    deletion was asked for until somebody takes them away.
    """

    name: str
    namespace: str
    uid: str
    version: int
    owner_uid: str
    owner_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    terminating: bool
    grace: float = 0.0
    asked_to_go_at: float = 0.0
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedService:
    """The headless Service, in the fields that we set; a port is (name, port, target port, protocol)."""

    meta: Meta
    selector: Mapping[str, str]
    ports: tuple[tuple[str, int, int | str, str], ...]
    cluster_ip: str
    kind: str
    publish_not_ready: bool


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """One file of a ConfigMap: the digest of its text, and of what it says of membership and filters.

    ``membership`` is "" where the text is not a view; ``epoch`` is then 0.  ``told`` is what a pod is told of the file:
    the digest of the view without what it says of tasks that leave and of the tasks' pods, and that of the latter.
    ``incarnations`` is what the file tells of the tasks' pods, by job and index.
    """

    digest: str
    membership: str
    epoch: int
    told: str = ""
    incarnations: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    @property
    def lasting(self) -> str:
        """The digest of all that the tasks which stay go by: see :func:`lasting`."""
        return lasting(self.told)


def lasting(told: str) -> str:
    """Give the part of what a pod is told that stays the same where only tasks leave, or become other pods."""
    return told.partition("-")[0]


@dataclass(frozen=True, slots=True)
class ObservedConfigMap:
    """A ConfigMap of ours: what its files say, not their text.

    ``binary_files`` are none of ours in a ConfigMap of views.  ``archive`` is the SHA-256 of the resolver's archive, in
    hexadecimal digits, in a ConfigMap that is named as a copy of it and has no other file; "" in any other.
    """

    meta: Meta
    files: Mapping[str, ObservedFile]
    binary_files: tuple[str, ...]
    immutable: bool
    archive: str = ""


@dataclass(frozen=True, slots=True)
class ObservedNetworkPolicy:
    """A NetworkPolicy: the digest of its spec, and its podSelector, of which a patch must name what goes.

    ``ingress`` says whether it is for incoming connections.
    """

    meta: Meta
    digest: str
    pod_selector: Mapping[str, Any]
    ingress: bool = True


@dataclass(frozen=True, slots=True)
class ObservedDisruptionBudget:
    """A PodDisruptionBudget: the digest of its spec, and its selector, of which a patch must name what goes."""

    meta: Meta
    digest: str
    selector: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedPodGroup:
    """A PodGroup: how many pods it needs at least, and what the scheduler says of it.

    ``placed`` says that there was room for so many at once (PodGroupInitiallyScheduled), which stays so whatever
    becomes of them; ``trouble`` says in the scheduler's words why there was none the last time it tried, and is None
    where the scheduler says that of the pods alone.  ``priority_class`` is None where a PodGroup can have none.
    """

    meta: Meta
    min_count: int
    priority_class: str | None
    placed: bool
    trouble: str | None


@dataclass(frozen=True, slots=True)
class PodSetUpdate:
    """What an admission check wants to be in the pods of a podSet (Kueue, "Admission Check")."""

    pod_set: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedWorkload:
    """A Workload: what it asks of its queue, and what Kueue says of it.

    ``asked`` and ``least`` are the count and the minCount of each podSet; ``asks`` digests what one pod of each asks
    for, as the annotation has it.  ``granted`` is how many pods of each podSet have quota, None while it has none, and
    ``flavors`` names the ResourceFlavors of each; ``reclaimed`` counts the pods of each that need none any more,
    of those that were asked for.  ``conditions`` are those of the status as they are, because a change of one replaces
    the list.  ``generation`` counts the edits of what it asks for.
    """

    meta: Meta
    generation: int
    queue: str
    active: bool
    priority_class: str
    asked: Mapping[str, int]
    least: Mapping[str, int]
    granted: Mapping[str, int] | None = None
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reclaimed: Mapping[str, int] = field(default_factory=dict)
    updates: tuple[PodSetUpdate, ...] = ()
    checks: tuple[str, ...] = ()
    conditions: tuple[Mapping[str, Any], ...] = ()

    def says(self, kind: str) -> Mapping[str, Any]:
        """Give the condition of this type, an empty one where there is none."""
        return next((one for one in self.conditions if one.get("type") == kind), {})

    def is_true(self, kind: str) -> bool:
        """Tell whether the condition of this type is there and true."""
        return self.says(kind).get("status") == "True"

    @property
    def unjudged(self) -> bool:
        """Whether Kueue has judged what it asked for before, and not what it asks for now."""
        judged = self.says("QuotaReserved").get("observedGeneration")
        return isinstance(judged, int) and 0 < judged < self.generation

    @property
    def admitted(self) -> bool:
        """Whether its pods may run: it has quota, all checks have passed, and nobody takes the quota away."""
        over = self.is_true("Evicted") or self.is_true("Finished") or not self.active
        return self.granted is not None and self.is_true("Admitted") and not over


@dataclass(frozen=True, slots=True)
class ObservedFlavor:
    """A ResourceFlavor: the labels of its nodes, and the tolerations that the pods on them get."""

    meta: Meta
    node_labels: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Exit:
    """How the container that speaks for a task ended; ``message`` is the last line that it left, "" if none."""

    code: int
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """What we saw of a pod ourselves, by our own clock: no other machine's is believed.

    ``since``, ``ended_at`` and ``leaving_since`` are when we first saw the pod, that its program was over, and that its
    deletion was asked for, in seconds since the epoch; 0.0 while it was not so.  ``ended_first`` says that the end came
    before the deletion was asked for: we saw it so, or the pod's own status proves it.  ``leaving_generation`` is the
    generation of a pod that is being deleted when we first saw that; 0 of any other.
    """

    since: float = 0.0
    ended_at: float = 0.0
    leaving_since: float = 0.0
    ended_first: bool = False
    leaving_generation: int = 0


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod, in the fields that a decision or the status reads.

    ``devices`` counts the healthy devices that the kubelet's device plugin manager
    granted, by resource, or is None where the server does not tell.  ``trouble`` is the most telling cause that the pod
    is not ready, in words.  ``resolver`` is the ConfigMap from which it has the resolver, "" if from none.  ``exit`` is
    how the task's program ended, None while it runs or where nobody can tell; ``disrupted`` says that somebody took the
    pod away, so that its end says nothing of its program.  ``at_rest`` says that no container runs any more: the
    kubelet tells so a second or two before it changes the phase.  ``group`` is the PodGroup with which the scheduler
    places it, "" if it is placed for itself.  ``generation`` is the pod's while it is being
    deleted, which counts it up, and ``told_of`` the one of which the kubelet's status speaks then (KEP-5067); else 0,
    as on a server too old for that.
    """

    meta: Meta
    phase: str
    ready: bool
    disrupted: bool
    reason: str
    node: str
    devices: Mapping[str, int] | None
    trouble: str
    exit: Exit | None = None
    resolver: str = ""
    at_rest: bool = False
    group: str = ""
    generation: int = 0
    told_of: int = 0
    noted: Noted = field(default_factory=Noted)

    def seen(self, before: ObservedPod | None, now: float) -> ObservedPod:
        """Give this pod with what we noted of it, now and when we saw it last."""
        known = before.noted if before is not None else Noted()
        # NB: the generation that it had when we first saw it terminate: every edit after that counts it up, too.
        leaving = known.leaving_generation or self.generation
        ended_first = known.ended_first or (self.ended and 0 < self.told_of < leaving)
        noted = Noted(
            since=known.since or now,
            ended_at=(known.ended_at or now) if self.ended else 0.0,
            leaving_since=(known.leaving_since or self._asked_to_go(before, now)) if self.meta.terminating else 0.0,
            ended_first=ended_first or (self.ended and not self.meta.terminating),
            leaving_generation=leaving,
        )
        return self if noted == self.noted else replace(self, noted=noted)

    def _asked_to_go(self, before: ObservedPod | None, now: float) -> float:
        """Tell since when a pod that is seen to leave for the first time leaves; another operator may have seen it."""
        asked = self.meta.asked_to_go_at
        return asked if before is None and now - _BELIEVED < asked < now else now

    @property
    def told(self) -> str:
        """What the pod was last told of its view: see :class:`ObservedFile`."""
        return self.meta.annotations.get(naming.ANNOTATION_VIEW, "")

    @property
    def attempt(self) -> int:
        """How often the task failed in a row before this pod; 0 where the annotation is missing or no number."""
        return self._number(naming.ANNOTATION_ATTEMPT)

    @property
    def incarnation(self) -> int:
        """How often the job had been restarted as a whole when the pod was made."""
        return self._number(naming.ANNOTATION_INCARNATION)

    @property
    def chosen_scheduler(self) -> str:
        """The scheduler that was chosen for it when it was made, "" where the template or Kubernetes chose."""
        return self.meta.annotations.get(naming.ANNOTATION_SCHEDULER, "")

    @property
    def replacement(self) -> int:
        """How many lost pods of the job were counted when this one was made in place of one; 0 if it was not."""
        return self._number(naming.ANNOTATION_REPLACEMENT)

    @property
    def surplus_since(self) -> int:
        """When the pod was found to be no longer declared, in seconds since the epoch; 0 if it was not."""
        return self._number(naming.ANNOTATION_SURPLUS_SINCE)

    @property
    def ended(self) -> bool:
        """Whether the task's program is over, for whatever reason."""
        return self.exit is not None or self.phase in ("Succeeded", "Failed")

    @property
    def serving(self) -> bool:
        """Whether the task does its work: it runs, is ready, and stays."""
        return self.ready and self.phase == "Running" and self.exit is None and not self.meta.terminating

    def _number(self, annotation: str) -> int:
        text = self.meta.annotations.get(annotation, "0")
        if text == "0":
            return 0
        return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER else 0

    @property
    def listening(self) -> bool:
        """Whether a program in the pod may read the view now, so that the pod must be told of a change."""
        return self.phase in ("Pending", "Running") and not self.meta.terminating and self.exit is None


Child = (
    ObservedService
    | ObservedConfigMap
    | ObservedNetworkPolicy
    | ObservedDisruptionBudget
    | ObservedPodGroup
    | ObservedWorkload
    | ObservedFlavor
    | ObservedPod
)

_KINDS: Final = get_args(Child)
_about_each: Final = attrgetter(*(one.name for one in fields(Meta) if one.name != "version"))
_of_each: Final = {kind: attrgetter(*(one.name for one in fields(kind) if one.name != "meta")) for kind in _KINDS}


def differ_in_version_alone(one: Child, other: Child) -> bool:
    """Tell whether two states of a child are the same in all that a decision reads."""
    if type(one) is not type(other) or _about_each(one.meta) != _about_each(other.meta):
        return False
    values = _of_each[type(one)]
    same: bool = values(one) == values(other)
    return same


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that exists under a cluster's names or its control, each by its name.

    ``other_policies`` are the NetworkPolicies of its namespace that no TFCluster controls.  ``no_groups`` says why
    there can be no PodGroups, "" where there can, and ``no_workloads`` and ``no_flavors`` the same of the objects of a
    queue.  ``flavors`` are those of the whole Kubernetes cluster.
    """

    services: Mapping[str, ObservedService] = field(default_factory=dict)
    config_maps: Mapping[str, ObservedConfigMap] = field(default_factory=dict)
    network_policies: Mapping[str, ObservedNetworkPolicy] = field(default_factory=dict)
    other_policies: tuple[ObservedNetworkPolicy, ...] = ()
    budgets: Mapping[str, ObservedDisruptionBudget] = field(default_factory=dict)
    groups: Mapping[str, ObservedPodGroup] = field(default_factory=dict)
    no_groups: str = ""
    workloads: Mapping[str, ObservedWorkload] = field(default_factory=dict)
    no_workloads: str = ""
    flavors: Mapping[str, ObservedFlavor] = field(default_factory=dict)
    no_flavors: str = ""
    pods: Mapping[str, ObservedPod] = field(default_factory=dict)
