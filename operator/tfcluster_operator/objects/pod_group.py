"""The PodGroup of a gang: the scheduler places this number of its pods together, or none."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.objects import base
from tfcluster_operator.objects.base import Condition, Kind, Meta, Metadata


class _GangPolicy(msgspec.Struct, rename="camel"):
    min_count: int = 0


class _SchedulingPolicy(msgspec.Struct):
    gang: _GangPolicy = msgspec.field(default_factory=_GangPolicy)


class _Topology(msgspec.Struct):
    key: str = ""


class _Constraints(msgspec.Struct):
    topology: list[_Topology] = msgspec.field(default_factory=list)


class _Spec(msgspec.Struct, rename="camel"):
    """The spec in Kubernetes' API, and ``min_member`` in that of scheduler-plugins and Volcano."""

    scheduling_policy: _SchedulingPolicy = msgspec.field(default_factory=_SchedulingPolicy)
    scheduling_constraints: _Constraints = msgspec.field(default_factory=_Constraints)
    min_member: int = 0
    priority_class_name: str = ""


class _Status(msgspec.Struct):
    conditions: list[Condition] | None = None


class _Wire(msgspec.Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup: its minimum number of pods, its priority class (None if the API lacks the field), and its status."""

    KIND: ClassVar = "PodGroup"
    meta: Meta
    min_count: int
    priority_class: str | None
    placed: bool
    #: The scheduler's latest message on why it was not placed; None if the scheduler writes that to the pods only.
    trouble: str | None
    #: The topology key of the domain that its pods share; "" also if the API server lacks or disables the field.
    topology: str = ""


def _of_kubernetes(wire: _Wire) -> PodGroup:
    scheduled = _condition(wire, "PodGroupInitiallyScheduled")
    trouble = base.shortened(scheduled.message or scheduled.reason) if scheduled.status == "False" else ""
    count, priority = wire.spec.scheduling_policy.gang.min_count, wire.spec.priority_class_name
    topology = next((one.key for one in wire.spec.scheduling_constraints.topology), "")
    return PodGroup(Meta.read(wire.metadata), count, priority, scheduled.status == "True", trouble, topology)


def _of_plugins(wire: _Wire) -> PodGroup:
    # Its phase is Scheduling once enough pods exist, even if they do not have nodes.
    meta = Meta.read(wire.metadata)
    return PodGroup(meta, wire.spec.min_member, None, naming.ANNOTATION_PLACED in meta.annotations, None)


def _of_volcano(wire: _Wire) -> PodGroup:
    meta, unschedulable = Meta.read(wire.metadata), _condition(wire, "Unschedulable")
    words = unschedulable.message or unschedulable.reason
    trouble = base.shortened(words) if unschedulable.status == "True" else None
    # Its phase is Running once resources are reserved, which can still fail.
    placed = naming.ANNOTATION_PLACED in meta.annotations
    return PodGroup(meta, wire.spec.min_member, wire.spec.priority_class_name, placed, trouble)


def _condition(wire: _Wire, kind: str) -> Condition:
    return next((one for one in wire.status.conditions or () if one.type == kind), Condition())


_READERS: Final = {"Kubernetes": _of_kubernetes, "SchedulerPlugins": _of_plugins, "Volcano": _of_volcano}


def kind_for(scheduler: GangScheduler) -> Kind:
    """Build the row of the PodGroups of a scheduler."""
    return base.kind_of(
        PodGroup,
        "podgroups",
        _Wire,
        _READERS[scheduler.kind],
        lambda cluster, _: names_of(cluster),
        api=f"/apis/{scheduler.api}",
        optional=True,
    )


KIND: Final = kind_for(KUBERNETES)


def names_of(cluster: TFCluster) -> list[str]:
    """Return the names of the PodGroups of a cluster's gangs, by the rounds in its status."""
    if cluster.gang is None:
        return []
    return list(dict.fromkeys(name_for(cluster, job, cluster.ledger) for job in cluster.jobs))


def name_for(cluster: TFCluster, job: Job, known: Ledger) -> str:
    """Return the name of the PodGroup that a job's tasks start with now."""
    return naming.gang_name(cluster.name, known.of(job.name).incarnation, wave_of(job))


def wave_of(job: Job) -> str:
    """Return the start group of a job: "" for all jobs that start together, else the job itself."""
    return job.name if job.start_after else ""


def build(  # noqa: PLR0917 - what a PodGroup has
    cluster: TFCluster, name: str, job: str, min_count: int, priority_class: str, topology: str
) -> dict[str, Any]:
    """Build a PodGroup (Kubernetes, "Gang Scheduling"; scheduler-plugins, "Coscheduling"; Volcano, "PodGroup")."""
    scheduler = _scheduler_of(cluster)
    priority = priority_class if scheduler.has_priority else ""
    annotations = {naming.ANNOTATION_PRIORITY: priority} if priority else None
    spec = {**scheduler.counting(min_count), **({"priorityClassName": priority} if priority else {})}
    if topology and scheduler.kind == "Kubernetes":
        # Without the feature gate TopologyAwareWorkloadScheduling the API server drops it.
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    labels = base.labels_of(cluster, job)
    return base.manifest(cluster, scheduler.api, "PodGroup", name, labels, annotations, spec=spec)


def change(
    cluster: TFCluster, existing: PodGroup, *, job: str, min_count: int, placed: bool, begun: bool
) -> dict[str, Any] | None:
    """Return the patch that corrects a PodGroup's number of pods, or None if nothing differs."""
    scheduler = _scheduler_of(cluster)
    # The count matters only until the gang is scheduled; it does not block replacements of lost pods.
    spec = scheduler.counting(min_count) if existing.min_count != min_count and not placed else None
    # Existing pods prove that the gang was scheduled; if all are lost together, only this annotation does.
    noted = {naming.ANNOTATION_PLACED: "true"} if begun and not scheduler.remembers else {}
    return base.change_of(existing.meta, labels=base.labels_of(cluster, job), annotations=noted, spec=spec)


def is_unfit(priority_class: str, topology: str, existing: PodGroup) -> bool:
    """Return whether a PodGroup was created with another priority or topology, which cannot be edited."""
    if existing.topology not in {"", topology}:
        return True
    if existing.priority_class is None:
        return False
    if not priority_class:
        return naming.ANNOTATION_PRIORITY in existing.meta.annotations
    return existing.priority_class != priority_class


def _scheduler_of(cluster: TFCluster) -> GangScheduler:
    return KUBERNETES if cluster.gang is None else cluster.gang.scheduler
