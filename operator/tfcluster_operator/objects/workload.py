"""The Workload by which a cluster asks its queue for quota, and the ResourceFlavors that Kueue grants it of."""

from __future__ import annotations

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


class _Assignment(msgspec.Struct):
    name: str = "main"
    flavors: dict[str, str] | None = None
    count: int | None = None


class _Admission(msgspec.Struct, rename="camel"):
    pod_set_assignments: list[_Assignment] = msgspec.field(default_factory=list)


class _Reclaimable(msgspec.Struct):
    name: str = ""
    count: int = 0


class PodSetUpdate(msgspec.Struct, rename="camel"):
    """What an admission check wants to be in the pods of a podSet (Kueue, "Admission Check")."""

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
    #: As they are, because a change of one replaces the list.
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
    """A Workload: what it asks of its queue, and what Kueue says of it; ``generation`` counts its edits."""

    KIND: ClassVar = "Workload"
    meta: Meta
    generation: int
    spec: WorkloadSpec
    status: WorkloadStatus

    @property
    def queue(self) -> str:
        """The LocalQueue in which it waits."""
        return self.spec.queue_name

    @property
    def active(self) -> bool:
        """Whether nobody has deactivated it."""
        return self.spec.active is not False

    @property
    def asked(self) -> Mapping[str, int]:
        """How many pods of each podSet it asks quota for."""
        return {one.name: one.count for one in self.spec.pod_sets}

    @property
    def granted(self) -> Mapping[str, int] | None:
        """How many pods of each podSet have quota; None while it has none."""
        if self.status.admission is None:
            return None
        asked, assigned = self.asked, self.status.admission.pod_set_assignments
        return {one.name: asked.get(one.name, 0) if one.count is None else one.count for one in assigned}

    def flavors(self, pod_set: str) -> list[str]:
        """Return the names of the ResourceFlavors of which a podSet has its quota."""
        assigned = () if self.status.admission is None else self.status.admission.pod_set_assignments
        return sorted({flavor for one in assigned if one.name == pod_set for flavor in (one.flavors or {}).values()})

    @property
    def reclaimed(self) -> Mapping[str, int]:
        """How many pods of each podSet need no quota any more, of those that were asked for."""
        return {one.name: one.count for one in self.status.reclaimable_pods}

    @property
    def updates(self) -> list[PodSetUpdate]:
        """What the admission checks want to be in its pods."""
        return [update for check in self.status.admission_checks for update in check.pod_set_updates]

    @property
    def pending_checks(self) -> list[str]:
        """The admission checks that have not passed, with what they say."""
        return [
            f"{one.name} ({one.state}{': ' + one.message if one.message else ''})"
            for one in self.status.admission_checks
            if one.state != "Ready"
        ]

    def says(self, kind: str) -> Mapping[str, Any]:
        """Return the condition of this type, an empty one where there is none."""
        return next((one for one in self.status.conditions if one.get("type") == kind), {})

    def is_true(self, kind: str) -> bool:
        """Return whether the condition of this type is there and true."""
        return self.says(kind).get("status") == "True"

    @property
    def unjudged(self) -> bool:
        """Whether Kueue has judged what it asked for before, and not what it asks for now."""
        judged = self.says("QuotaReserved").get("observedGeneration")
        return isinstance(judged, int) and 0 < judged < self.generation

    @property
    def admitted(self) -> bool:
        """Whether its pods can run: it has quota, all checks have passed, and nobody takes the quota away."""
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
    """A ResourceFlavor: the labels of its nodes, and the tolerations that the pods on them get."""

    KIND: ClassVar = "ResourceFlavor"
    meta: Meta
    node_labels: Mapping[str, str]
    tolerations: list[dict[str, Any]]


def _names(cluster: TFCluster, known: Iterable[Child]) -> list[str]:
    """Return the name of the first Workload that a cluster needs for its queue, and the next one."""
    numbers = [naming.claim_number(one.meta.name) for one in known]
    return [naming.claim_name(cluster.name, one) for one in {0, 1 + max(numbers, default=-1)}] if cluster.queue else []


KIND: Final = base.kind_of(
    Workload.KIND,
    "workloads",
    _Wire,
    lambda wire: Workload(Meta.read(wire.metadata), wire.metadata.generation, wire.spec, wire.status),
    _names,
    api=f"/apis/{_API}",
    optional=True,
)
FLAVORS: Final = base.kind_of(
    Flavor.KIND,
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
    """What a Workload should say: in which queue, for which pods, with which priority.

    ``pod_sets`` are as Kueue has them, and ``asks`` digests what a pod of each asks for.  ``priority_class`` is a
    PriorityClass where ``priority_of_pods`` says that the pods' own decides, else a WorkloadPriorityClass; "" if none.
    """

    name: str
    queue: str
    pod_sets: tuple[Mapping[str, Any], ...]
    asks: str
    priority_class: str
    priority_of_pods: bool


def build(cluster: TFCluster, claim: QuotaRequest) -> dict[str, Any]:
    """Build one Workload, without its priority: that is the value of the class that it names."""
    named = {**(_OF_PODS if claim.priority_of_pods else _OF_WORKLOADS), "name": claim.priority_class}
    labels, annotations = naming.cluster_labels(cluster.name), {naming.ANNOTATION_ASKS: claim.asks}
    return {
        "apiVersion": _API,
        "kind": "Workload",
        "metadata": base.owned(cluster, claim.name, labels=labels, annotations=annotations),
        "spec": {
            "queueName": claim.queue,
            "podSets": [dict(one) for one in claim.pod_sets],
            **({"priorityClassRef": named} if claim.priority_class else {}),
        },
    }
