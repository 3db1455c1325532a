"""The API's objects in the fields that we read, as the API spells them."""

from __future__ import annotations

from typing import Any

import msgspec


class Reference(msgspec.Struct):
    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Reference] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int = 0
    generation: int = 0
    finalizers: list[str] | None = None


class Port(msgspec.Struct, rename="camel"):
    name: str = ""
    port: int = 0
    target_port: int | str | None = None
    protocol: str = "TCP"


class ServiceSpec(msgspec.Struct, rename="camel"):
    selector: dict[str, str] | None = None
    ports: list[Port] | None = None
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    type: str = "ClusterIP"
    publish_not_ready_addresses: bool = False


class Service(msgspec.Struct):
    metadata: Metadata
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ConfigMap(msgspec.Struct, rename="camel"):
    metadata: Metadata
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    immutable: bool | None = None


class NetworkPolicy(msgspec.Struct):
    metadata: Metadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class PodDisruptionBudget(msgspec.Struct):
    metadata: Metadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class GangPolicy(msgspec.Struct, rename="camel"):
    min_count: int = 0


class SchedulingPolicy(msgspec.Struct):
    gang: GangPolicy = msgspec.field(default_factory=GangPolicy)


class PodGroupSpec(msgspec.Struct, rename="camel"):
    scheduling_policy: SchedulingPolicy = msgspec.field(default_factory=SchedulingPolicy)
    priority_class_name: str = ""


class SchedulingGroup(msgspec.Struct, rename="camel"):
    pod_group_name: str = ""


class Container(msgspec.Struct, rename="camel"):
    name: str = ""
    restart_policy: str | None = None


class ConfigMapSource(msgspec.Struct):
    name: str = ""


class Volume(msgspec.Struct, rename="camel"):
    name: str = ""
    config_map: ConfigMapSource | None = None


class PodSpec(msgspec.Struct, rename="camel"):
    containers: list[Container] = msgspec.field(default_factory=list)
    node_name: str = ""
    volumes: list[Volume] | None = None
    scheduling_group: SchedulingGroup | None = None


class Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class Ended(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class State(msgspec.Struct):
    waiting: Waiting | None = None
    terminated: Ended | None = None


class Device(msgspec.Struct):
    health: str = "Healthy"


class Allocated(msgspec.Struct):
    name: str = ""
    resources: list[Device] | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    state: State = msgspec.field(default_factory=State)
    allocated_resources_status: list[Allocated] | None = None


class Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    observed_generation: int = 0
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodGroupStatus(msgspec.Struct):
    conditions: list[Condition] | None = None


class PodGroup(msgspec.Struct):
    metadata: Metadata
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class CountedPodGroupSpec(msgspec.Struct, rename="camel"):
    min_member: int = 0
    priority_class_name: str = ""


class CountedPodGroup(msgspec.Struct):
    """A PodGroup of scheduler-plugins or of Volcano."""

    metadata: Metadata
    spec: CountedPodGroupSpec = msgspec.field(default_factory=CountedPodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class PodSet(msgspec.Struct, rename="camel"):
    name: str = "main"
    count: int = 1
    min_count: int | None = None


class PriorityClassReference(msgspec.Struct):
    name: str = ""


class WorkloadSpec(msgspec.Struct, rename="camel"):
    pod_sets: list[PodSet] = msgspec.field(default_factory=list)
    queue_name: str = ""
    priority_class_ref: PriorityClassReference = msgspec.field(default_factory=PriorityClassReference)
    active: bool | None = None


class PodSetAssignment(msgspec.Struct):
    name: str = "main"
    flavors: dict[str, str] | None = None
    count: int | None = None


class Admission(msgspec.Struct, rename="camel"):
    pod_set_assignments: list[PodSetAssignment] = msgspec.field(default_factory=list)


class ReclaimablePod(msgspec.Struct):
    name: str = ""
    count: int = 0


class PodSetUpdate(msgspec.Struct, rename="camel"):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None


class AdmissionCheck(msgspec.Struct, rename="camel"):
    name: str = ""
    state: str = ""
    message: str = ""
    pod_set_updates: list[PodSetUpdate] | None = None


class WorkloadStatus(msgspec.Struct, rename="camel"):
    conditions: list[dict[str, Any]] | None = None
    admission: Admission | None = None
    reclaimable_pods: list[ReclaimablePod] | None = None
    admission_checks: list[AdmissionCheck] | None = None


class Workload(msgspec.Struct):
    metadata: Metadata
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class ResourceFlavorSpec(msgspec.Struct, rename="camel"):
    node_labels: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None


class ResourceFlavor(msgspec.Struct):
    metadata: Metadata
    spec: ResourceFlavorSpec = msgspec.field(default_factory=ResourceFlavorSpec)


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    observed_generation: int = 0
    reason: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
