"""From the bytes of the API to observed values: narrow structs, so that a pod costs microseconds and not kilobytes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from sys import intern
from typing import Any, Final, Generic, TypeVar

import msgspec

from tfcluster_operator.kube.structs import (
    AdmissionCheck,
    Condition,
    ConfigMap,
    CountedPodGroup,
    Ended,
    Metadata,
    NetworkPolicy,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PodStatus,
    Reference,
    ResourceFlavor,
    Service,
    Volume,
    Workload,
)
from tfcluster_operator.manifests.resolver_archive import ARCHIVE_FILE, digest_of
from tfcluster_operator.model import budgets, isolation, naming
from tfcluster_operator.model.actions import Kind
from tfcluster_operator.model.gang_schedulers import (
    KUBERNETES,
    PLUGINS_LABEL,
    VOLCANO_ANNOTATIONS,
    GangScheduler,
)
from tfcluster_operator.model.observed import (
    Child,
    Exit,
    Meta,
    ObservedConfigMap,
    ObservedDisruptionBudget,
    ObservedFlavor,
    ObservedNetworkPolicy,
    ObservedPod,
    ObservedPodGroup,
    ObservedService,
    ObservedWorkload,
    PodSetUpdate,
)
from tfcluster_operator.model.spec import choose_main
from tfcluster_operator.model.view_files import read_file

#: Waiting reasons that the kubelet gives to a container that is only on its way.
_ORDINARY_WAITING: Final = ("ContainerCreating", "PodInitializing", "")
#: Reasons of a pod that the kubelet gives when its program has ended it; all others say what the node, the kubelet or
#: the scheduler did to it: UnexpectedAdmissionError, OutOfcpu, NodeAffinity, Evicted, Preempting, Terminated, NodeLost.
_OWN_ENDS: Final = ("", "DeadlineExceeded")
#: Reasons of a container whose end nobody has seen: its node or its container runtime was started again.
_UNSEEN_ENDS: Final = ("Unknown", "ContainerStatusUnknown")


#: A condition's message goes into ours up to so many characters.
_LONGEST_MESSAGE: Final = 200
_OUR_OWN: Final = f"{naming.GROUP}/"

_Wire = TypeVar(
    "_Wire",
    Service,
    ConfigMap,
    NetworkPolicy,
    PodDisruptionBudget,
    PodGroup,
    CountedPodGroup,
    Workload,
    ResourceFlavor,
    Pod,
)


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct, Generic[_Wire]):
    metadata: ListMeta
    items: list[_Wire] | None = None


class Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct):
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of child: where it is served, and how its objects are read."""

    kind: Kind
    plural: str
    read: Callable[[bytes | msgspec.Raw], Child]
    #: Gives the objects of a list one by one: reading a ConfigMap of views takes milliseconds.
    read_list: Callable[[bytes], tuple[Iterator[Child], ListMeta]]
    api: str = "/api/v1"
    #: Whether ours alone are watched, by their label; other people's NetworkPolicies decide what ours must say.
    ours_alone: bool = True
    #: Whether the operator does without it where the server does not serve it, or does not let it list.
    optional: bool = False
    #: Whether its objects are in no namespace.
    cluster_wide: bool = False

    def path(self, namespace: str | None, name: str = "") -> str:
        """Give the path of an object, of a namespace's list, or (namespace None) of the list over all."""
        middle = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.api}{middle}/{self.plural}" + (f"/{name}" if name else "")


def _meta(wire: Metadata) -> Meta:
    owner = next((one for one in wire.owner_references or () if one.controller), Reference())
    # NB: the same words stand in each of thousands of pods, and are kept once.
    return Meta(
        name=wire.name,
        namespace=intern(wire.namespace),
        uid=wire.uid,
        version=int(wire.resource_version),
        owner_uid=intern(owner.uid),
        owner_name=intern(owner.name) if owner.kind == naming.KIND else "",
        labels={intern(k): intern(v) for k, v in (wire.labels or {}).items()},
        # Others' annotations can be long, and no decision reads them.
        annotations={intern(k): intern(v) for k, v in (wire.annotations or {}).items() if k.startswith(_OUR_OWN)},
        terminating=wire.deletion_timestamp is not None,
        grace=float(wire.deletion_grace_period_seconds),
        asked_to_go_at=0.0
        if wire.deletion_timestamp is None
        else datetime.fromisoformat(wire.deletion_timestamp).timestamp() - wire.deletion_grace_period_seconds,
        finalizers=tuple(wire.finalizers or ()),
    )


def _service(wire: Service) -> Child:
    return ObservedService(
        meta=_meta(wire.metadata),
        selector=wire.spec.selector or {},
        ports=tuple((p.name, p.port, p.target_port or p.port, p.protocol) for p in wire.spec.ports or ()),
        cluster_ip=wire.spec.cluster_ip,
        kind=wire.spec.type,
        publish_not_ready=wire.spec.publish_not_ready_addresses,
    )


def _config_map(wire: ConfigMap) -> Child:
    return ObservedConfigMap(
        meta=_meta(wire.metadata),
        files={name: read_file(text) for name, text in (wire.data or {}).items()},
        binary_files=tuple(wire.binary_data or ()),
        immutable=bool(wire.immutable),
        archive=_archive_in(wire) if naming.is_of_the_resolver(wire.metadata.name) else "",
    )


def _archive_in(wire: ConfigMap) -> str:
    """Give the digest of the resolver's archive, "" where it is not the only file: the content itself is not kept."""
    files = wire.binary_data or {}
    if wire.data or list(files) != [ARCHIVE_FILE]:
        return ""
    # NB: the API server has checked that it is base64.
    return digest_of(base64.b64decode(files[ARCHIVE_FILE]))


def _network_policy(wire: NetworkPolicy) -> Child:
    meta = _meta(wire.metadata)
    return ObservedNetworkPolicy(
        # NB: every cluster of the namespace would be looked at for a label on somebody's policy.
        meta=meta if naming.LABEL_CLUSTER in meta.labels else replace(meta, labels={}),
        digest=isolation.digest_of(wire.spec),
        pod_selector=wire.spec.get("podSelector") or {},
        ingress="Ingress" in wire.spec.get("policyTypes", ("Ingress",)),
    )


def _disruption_budget(wire: PodDisruptionBudget) -> Child:
    return ObservedDisruptionBudget(
        meta=_meta(wire.metadata),
        digest=budgets.digest_of(wire.spec),
        selector=wire.spec.get("selector") or {},
    )


def _pod_group(wire: PodGroup) -> Child:
    conditions = {condition.type: condition for condition in wire.status.conditions or ()}
    scheduled = conditions.get("PodGroupInitiallyScheduled", Condition())
    return ObservedPodGroup(
        meta=_meta(wire.metadata),
        min_count=wire.spec.scheduling_policy.gang.min_count,
        priority_class=wire.spec.priority_class_name,
        placed=scheduled.status == "True",
        trouble=_shortened(scheduled.message or scheduled.reason) if scheduled.status == "False" else "",
    )


def _plugins_group(wire: CountedPodGroup) -> Child:
    # NB: its phase is Scheduling as soon as there are enough pods, whether or not they have places.
    meta = _meta(wire.metadata)
    return ObservedPodGroup(
        meta=meta, min_count=wire.spec.min_member, priority_class=None, placed=_was_placed(meta), trouble=None
    )


def _volcano_group(wire: CountedPodGroup) -> Child:
    meta = _meta(wire.metadata)
    conditions = {condition.type: condition for condition in wire.status.conditions or ()}
    unschedulable = conditions.get("Unschedulable", Condition())
    words = unschedulable.message or unschedulable.reason
    return ObservedPodGroup(
        meta=meta,
        min_count=wire.spec.min_member,
        priority_class=wire.spec.priority_class_name,
        # NB: its phase is Running from when places are set aside, which may still come to nothing.
        placed=_was_placed(meta),
        trouble=_shortened(words) if unschedulable.status == "True" else None,
    )


def _was_placed(meta: Meta) -> bool:
    return naming.ANNOTATION_PLACED in meta.annotations


def _workload(wire: Workload) -> Child:
    spec, status = wire.spec, wire.status
    assigned = None if status.admission is None else {one.name: one for one in status.admission.pod_set_assignments}
    asked = {one.name: one.count for one in spec.pod_sets}
    checks = status.admission_checks or ()
    return ObservedWorkload(
        meta=_meta(wire.metadata),
        generation=wire.metadata.generation,
        queue=spec.queue_name,
        active=spec.active is not False,
        priority_class=spec.priority_class_ref.name,
        asked=asked,
        least={one.name: one.min_count for one in spec.pod_sets if one.min_count is not None},
        granted=None
        if assigned is None
        else {name: asked.get(name, 0) if one.count is None else one.count for name, one in assigned.items()},
        flavors={name: tuple(sorted(set((one.flavors or {}).values()))) for name, one in (assigned or {}).items()},
        reclaimed={one.name: one.count for one in status.reclaimable_pods or ()},
        updates=tuple(
            PodSetUpdate(
                pod_set=update.name,
                node_selector=update.node_selector or {},
                tolerations=tuple(update.tolerations or ()),
                labels=update.labels or {},
                annotations=update.annotations or {},
            )
            for check in checks
            for update in check.pod_set_updates or ()
        ),
        checks=tuple(_pending(check) for check in checks if check.state != "Ready"),
        conditions=tuple(status.conditions or ()),
    )


def _pending(check: AdmissionCheck) -> str:
    return f"{check.name} ({check.state}{': ' + check.message if check.message else ''})"


def _flavor(wire: ResourceFlavor) -> Child:
    return ObservedFlavor(
        meta=_meta(wire.metadata),
        node_labels=wire.spec.node_labels or {},
        tolerations=tuple(wire.spec.tolerations or ()),
    )


def _shortened(message: str) -> str:
    return message[:_LONGEST_MESSAGE]


def _group_by_field(wire: Pod) -> str:
    return wire.spec.scheduling_group.pod_group_name if wire.spec.scheduling_group is not None else ""


def _group_by_label(wire: Pod) -> str:
    return (wire.metadata.labels or {}).get(PLUGINS_LABEL, "")


def _group_by_annotation(wire: Pod) -> str:
    annotations = wire.metadata.annotations or {}
    group = next((annotations[key] for key in VOLCANO_ANNOTATIONS if annotations.get(key)), "")
    # NB: Volcano gives a pod that names no PodGroup one of its own, named after the pod or after what controls it.
    makers = (wire.metadata.uid, *(owner.uid for owner in wire.metadata.owner_references or () if owner.controller))
    return "" if group in {f"podgroup-{uid}" for uid in makers} else group


def _pod(wire: Pod, group_of: Callable[[Pod], str] = _group_by_field) -> Child:
    status = wire.status
    conditions = {condition.type: condition for condition in status.conditions or ()}
    disruption = conditions.get("DisruptionTarget", Condition())
    ended = [one.state.terminated for one in status.container_statuses or () if one.state.terminated is not None]
    end = _exit(wire)
    taken = status.reason not in _OWN_ENDS or disruption.status == "True"
    leaving = wire.metadata.deletion_timestamp is not None
    return ObservedPod(
        meta=_meta(wire.metadata),
        phase=status.phase,
        ready=conditions.get("Ready", Condition()).status == "True",
        disrupted=taken or (end is not None and end.reason in _UNSEEN_ENDS),
        reason=status.reason or disruption.reason,
        node=intern(wire.spec.node_name),
        devices=_devices(status),
        trouble=_trouble(status, conditions),
        exit=end,
        at_rest=status.phase in ("Succeeded", "Failed") or 0 < len(ended) == len(wire.spec.containers),
        resolver=_resolver(wire.spec.volumes or ()),
        group=intern(group_of(wire)),
        generation=wire.metadata.generation if leaving else 0,
        told_of=_generation_told_of(wire, conditions) if leaving else 0,
    )


def _generation_told_of(wire: Pod, conditions: Mapping[str, Condition]) -> int:
    return wire.status.observed_generation or conditions.get("Ready", Condition()).observed_generation


def _resolver(volumes: Iterable[Volume]) -> str:
    sources = (volume.config_map for volume in volumes if volume.name == naming.RESOLVER_VOLUME)
    return intern(next((source.name for source in sources if source is not None), ""))


def _exit(pod: Pod) -> Exit | None:
    """Tell how the main container ended; a failed init container, or any other, speaks for one that never ran."""
    # NB: an admission plug-in may have put its own container first: which one is ours was noted when the pod was built.
    noted = (pod.metadata.annotations or {}).get(naming.ANNOTATION_MAIN_CONTAINER, "")
    names = [one.name for one in pod.spec.containers]
    main = noted if noted in names else choose_main(names)
    over = pod.status.phase in ("Succeeded", "Failed")
    if not over and any(one.name == main and one.restart_policy for one in pod.spec.containers):
        return None  # the kubelet starts it again by the container's own rules
    statuses = pod.status.container_statuses or []
    for one in statuses:
        if one.name == main and one.state.terminated is not None:
            return _as_exit(one.state.terminated)
    if pod.status.phase != "Failed":
        return None
    others = (*(pod.status.init_container_statuses or ()), *statuses)
    failed = (one.state.terminated for one in others if one.state.terminated is not None)
    return next((_as_exit(one) for one in failed if one.exit_code), None)


def _as_exit(ended: Ended) -> Exit:
    # NB: the last line of a log may be a bracket.
    lines = [line.strip() for line in ended.message.splitlines() if any(map(str.isalnum, line))]
    return Exit(code=ended.exit_code, reason=ended.reason, message=lines[-1][:200] if lines else "")


def _devices(status: PodStatus) -> Mapping[str, int] | None:
    told: dict[str, int] | None = None
    for container in status.container_statuses or ():
        for allocated in container.allocated_resources_status or ():
            told = told if told is not None else {}
            healthy = sum(device.health != "Unhealthy" for device in allocated.resources or ())
            told[allocated.name] = told.get(allocated.name, 0) + healthy
    return told


def _trouble(status: PodStatus, conditions: Mapping[str, Condition]) -> str:
    since = conditions.get("Ready", Condition()).last_transition_time
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in _ORDINARY_WAITING:
            # The two alternate while an image is not found; the words of the second name the cause as well.
            reason = "ImagePullBackOff" if waiting.reason == "ErrImagePull" else waiting.reason
            return _told(reason, since, waiting.message)
    scheduled = conditions.get("PodScheduled", Condition())
    if scheduled.status == "False":
        return _told(scheduled.reason, scheduled.last_transition_time, scheduled.message)
    return status.reason


def _told(reason: str, since: str | None, message: str) -> str:
    # NB: since when, not for how long: words that change by themselves would be written again and again.
    when = f"{reason} since {since[11:19]} UTC" if since else reason
    return f"{when}: {_shortened(message)}" if message else when


def _resource(kind: Kind, plural: str, wire: type[_Wire], observe: Callable[[_Wire], Child], **served: Any) -> Resource:
    one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wire)
    many: msgspec.json.Decoder[Any] = msgspec.json.Decoder(ObjectList[wire])  # type: ignore[valid-type]  # built per kind

    def read_list(body: bytes) -> tuple[Iterator[Child], ListMeta]:
        page = many.decode(body)
        return (observe(item) for item in page.items or ()), page.metadata

    return Resource(
        kind=kind, plural=plural, read=lambda body: observe(one.decode(body)), read_list=read_list, **served
    )


SERVICES: Final = _resource("Service", "services", Service, _service)
CONFIG_MAPS: Final = _resource("ConfigMap", "configmaps", ConfigMap, _config_map)
NETWORK_POLICIES: Final = _resource(
    "NetworkPolicy",
    "networkpolicies",
    NetworkPolicy,
    _network_policy,
    api="/apis/networking.k8s.io/v1",
    ours_alone=False,
)
DISRUPTION_BUDGETS: Final = _resource(
    "PodDisruptionBudget", "poddisruptionbudgets", PodDisruptionBudget, _disruption_budget, api="/apis/policy/v1"
)
POD_GROUPS: Final = _resource(
    "PodGroup", "podgroups", PodGroup, _pod_group, api=f"/apis/{KUBERNETES.api}", optional=True
)
_KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS: Final = _resource("Workload", "workloads", Workload, _workload, api=_KUEUE, optional=True)
FLAVORS: Final = _resource(
    "ResourceFlavor",
    "resourceflavors",
    ResourceFlavor,
    _flavor,
    api=_KUEUE,
    ours_alone=False,
    optional=True,
    cluster_wide=True,
)
PODS: Final = _resource("Pod", "pods", Pod, _pod)
RESOURCES: Final[Mapping[Kind, Resource]] = {
    one.kind: one
    for one in (
        SERVICES,
        CONFIG_MAPS,
        NETWORK_POLICIES,
        DISRUPTION_BUDGETS,
        POD_GROUPS,
        WORKLOADS,
        FLAVORS,
        PODS,
    )
}


def resources_for(scheduler: GangScheduler) -> Mapping[Kind, Resource]:
    """Give the kinds of children where gangs get their places from one of several schedulers.

    Returns:
        Each kind, as RESOURCES has it, but for PodGroups, and for how a pod names its own.
    """
    match scheduler.kind:
        case "Kubernetes":
            return RESOURCES
        case "SchedulerPlugins":
            read, group_of = _plugins_group, _group_by_label
        case "Volcano":
            read, group_of = _volcano_group, _group_by_annotation
    api = f"/apis/{scheduler.api}"
    return {
        **RESOURCES,
        "PodGroup": _resource("PodGroup", "podgroups", CountedPodGroup, read, api=api, optional=True),
        "Pod": _resource("Pod", "pods", Pod, partial(_pod, group_of=group_of)),
    }
