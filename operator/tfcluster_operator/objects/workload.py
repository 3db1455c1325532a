"""The Workload, a cluster's request for quota from its queue, and Kueue's ResourceFlavors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.objects import base
from tfcluster_operator.objects.base import Child, Meta, Metadata

_API: Final = "kueue.x-k8s.io/v1beta2"
_OF_PODS: Final = {"group": "scheduling.k8s.io", "kind": "PriorityClass"}
_OF_WORKLOADS: Final = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}


class _PodSet(msgspec.Struct, rename="camel"):
    name: str = "main"
    count: int = 1


class _ClassReference(msgspec.Struct):
    name: str = ""


class WorkloadSpec(msgspec.Struct, rename="camel"):
    pod_sets: list[_PodSet] = msgspec.field(default_factory=list)
    queue_name: str = ""
    priority_class_ref: _ClassReference = msgspec.field(default_factory=_ClassReference)
    active: bool | None = None


class _Assignment(msgspec.Struct, rename="camel"):
    name: str = "main"
    flavors: dict[str, str] | None = None
    count: int | None = None
    topology_assignment: dict[str, Any] | None = None


class _Admission(msgspec.Struct, rename="camel"):
    pod_set_assignments: list[_Assignment] = msgspec.field(default_factory=list)


class _Reclaimable(msgspec.Struct):
    name: str = ""
    count: int = 0


class PodSetUpdate(msgspec.Struct, rename="camel"):
    """The additions of an admission check to the pods of a podSet (Kueue, "Admission Check")."""

    name: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: list[dict[str, Any]] = msgspec.field(default_factory=list)


class _Check(msgspec.Struct, rename="camel"):
    name: str = ""
    state: str = ""
    message: str = ""
    pod_set_updates: list[PodSetUpdate] = msgspec.field(default_factory=list)


class WorkloadStatus(msgspec.Struct, rename="camel"):
    #: Unparsed, because a change of one replaces the list.
    conditions: list[dict[str, Any]] = msgspec.field(default_factory=list)
    admission: _Admission | None = None
    reclaimable_pods: list[_Reclaimable] = msgspec.field(default_factory=list)
    admission_checks: list[_Check] = msgspec.field(default_factory=list)


class _Wire(msgspec.Struct):
    metadata: Metadata
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Workload: its request, and Kueue's status; ``generation`` counts its edits."""

    KIND: ClassVar = "Workload"
    meta: Meta
    generation: int
    spec: WorkloadSpec
    status: WorkloadStatus

    @property
    def queue(self) -> str:
        """The LocalQueue of the Workload."""
        return self.spec.queue_name

    @property
    def active(self) -> bool:
        """Whether it is active; users can deactivate it."""
        return self.spec.active is not False

    @property
    def asked(self) -> Mapping[str, int]:
        """The requested number of pods of each podSet."""
        return {one.name: one.count for one in self.spec.pod_sets}

    @property
    def granted(self) -> Mapping[str, int] | None:
        """The admitted number of pods of each podSet; None without quota."""
        if self.status.admission is None:
            return None
        asked, assigned = self.asked, self.status.admission.pod_set_assignments
        return {one.name: asked.get(one.name, 0) if one.count is None else one.count for one in assigned}

    def _assigned(self, pod_set: str) -> list[_Assignment]:
        assigned = () if self.status.admission is None else self.status.admission.pod_set_assignments
        return [one for one in assigned if one.name == pod_set]

    def flavors(self, pod_set: str) -> list[str]:
        """Return the names of the ResourceFlavors of a podSet's quota."""
        return sorted({flavor for one in self._assigned(pod_set) for flavor in (one.flavors or {}).values()})

    def has_topology(self, pod_set: str) -> bool:
        """Return whether Kueue has chosen the topology domains of a podSet's pods."""
        return any(one.topology_assignment is not None for one in self._assigned(pod_set))

    @property
    def reclaimed(self) -> Mapping[str, int]:
        """How many of the requested pods of each podSet no longer need quota."""
        return {one.name: one.count for one in self.status.reclaimable_pods}

    @property
    def updates(self) -> list[PodSetUpdate]:
        """The additions of the admission checks to its pods."""
        return [update for check in self.status.admission_checks for update in check.pod_set_updates]

    @property
    def pending_checks(self) -> list[str]:
        """The admission checks that have not passed, with their messages."""
        return [
            f"{one.name} ({one.state}{': ' + one.message if one.message else ''})"
            for one in self.status.admission_checks
            if one.state != "Ready"
        ]

    def says(self, kind: str) -> Mapping[str, Any]:
        """Return the condition of this type, or an empty one."""
        return next((one for one in self.status.conditions if one.get("type") == kind), {})

    def is_true(self, kind: str) -> bool:
        """Return whether the condition of this type exists and is true."""
        return self.says(kind).get("status") == "True"

    @property
    def unjudged(self) -> bool:
        """Whether Kueue has evaluated its earlier request, but not the current one."""
        judged = self.says("QuotaReserved").get("observedGeneration")
        return isinstance(judged, int) and 0 < judged < self.generation

    @property
    def admitted(self) -> bool:
        """Whether its pods can run: it has quota, all checks have passed, and it is not being evicted."""
        over = self.is_true("Evicted") or self.is_true("Finished") or not self.active
        return self.granted is not None and self.is_true("Admitted") and not over


class _FlavorSpec(msgspec.Struct, rename="camel"):
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: list[dict[str, Any]] = msgspec.field(default_factory=list)


class _FlavorWire(msgspec.Struct):
    metadata: Metadata
    spec: _FlavorSpec = msgspec.field(default_factory=_FlavorSpec)


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor: the labels of its nodes, and the tolerations of the pods on them."""

    KIND: ClassVar = "ResourceFlavor"
    meta: Meta
    node_labels: Mapping[str, str]
    tolerations: list[dict[str, Any]]


def _names(cluster: TFCluster, known: Iterable[Child]) -> list[str]:
    """Return the name of the first Workload that a cluster needs for its queue, and the next one."""
    numbers = [naming.claim_number(one.meta.name) for one in known]
    return [naming.claim_name(cluster.name, one) for one in {0, 1 + max(numbers, default=-1)}] if cluster.queue else []


KIND: Final = base.kind_of(
    Workload,
    "workloads",
    _Wire,
    lambda wire: Workload(Meta.read(wire.metadata), wire.metadata.generation, wire.spec, wire.status),
    _names,
    api=f"/apis/{_API}",
    optional=True,
)
FLAVORS: Final = base.kind_of(
    Flavor,
    "resourceflavors",
    _FlavorWire,
    lambda wire: Flavor(Meta.read(wire.metadata), wire.spec.node_labels, wire.spec.tolerations),
    api=f"/apis/{_API}",
    ours_alone=False,
    optional=True,
    cluster_wide=True,
)


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """The wanted content of a Workload; ``asks`` has digests of the requests of each podSet's pods."""

    name: str
    queue: str
    pod_sets: tuple[Mapping[str, Any], ...]
    asks: str
    priority_class: str
    priority_of_pods: bool


def build(cluster: TFCluster, claim: QuotaRequest) -> dict[str, Any]:
    """Build one Workload, without its priority, which is the value of its priority class."""
    named = {**(_OF_PODS if claim.priority_of_pods else _OF_WORKLOADS), "name": claim.priority_class}
    labels, annotations = naming.cluster_labels(cluster.name), {naming.ANNOTATION_ASKS: claim.asks}
    spec = {
        "queueName": claim.queue,
        "podSets": [dict(one) for one in claim.pod_sets],
        **({"priorityClassRef": named} if claim.priority_class else {}),
    }
    return base.manifest(cluster, _API, "Workload", claim.name, labels, annotations, spec=spec)


def change_of(wanted: QuotaRequest, existing: Workload) -> dict[str, Any] | None:
    """Return the patch that corrects the requests of a Workload without quota, or None if nothing differs."""
    change: dict[str, Any] = {}
    asked = {one["name"]: one["count"] for one in wanted.pod_sets}
    # If partial admission is disabled, Kueue removes minCount; restoring it would never end.
    told = existing.meta.annotations.get(naming.ANNOTATION_ASKS) == wanted.asks
    if existing.asked != asked or not told:
        change["spec"] = {"podSets": [dict(one) for one in wanted.pod_sets]}
    if existing.queue != wanted.queue:
        change.setdefault("spec", {})["queueName"] = wanted.queue
    if not told:
        change["metadata"] = {"annotations": {naming.ANNOTATION_ASKS: wanted.asks}}
    return change or None
