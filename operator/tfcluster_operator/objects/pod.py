"""Parsing of pods: the fields that a decision or the status needs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from sys import intern
from typing import Any, ClassVar, Final

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler
from tfcluster_operator.declaration.spec import TFCluster, choose_main
from tfcluster_operator.objects import base
from tfcluster_operator.objects.base import Child, Condition, Kind, Meta, Metadata, shortened

#: Waiting reasons that the kubelet sets on a container that is starting normally.
_ORDINARY_WAITING: Final = ("ContainerCreating", "PodInitializing", "")
#: Reasons of a pod that the kubelet sets when its program has ended; all others are actions of the node, the kubelet or
#: the scheduler: UnexpectedAdmissionError, OutOfcpu, NodeAffinity, Evicted, Preempting, Terminated, NodeLost.
_OWN_ENDS: Final = ("", "DeadlineExceeded")
#: Reasons of a container whose end was not observed: its node or its container runtime was restarted.
_UNSEEN_ENDS: Final = ("Unknown", "ContainerStatusUnknown")
#: The most digits of a number in an annotation, which anyone can write.
_LONGEST_NUMBER: Final = 12
#: The API server's times are trusted no further back (seconds) than this.
_BELIEVED: Final = 86_400.0


class _SchedulingGroup(msgspec.Struct, rename="camel"):
    pod_group_name: str = ""


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    restart_policy: str | None = None


class _ConfigMapSource(msgspec.Struct):
    name: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    name: str = ""
    config_map: _ConfigMapSource | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] = msgspec.field(default_factory=list)
    node_name: str = ""
    volumes: list[_Volume] | None = None
    scheduling_group: _SchedulingGroup | None = None


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Ended(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    terminated: _Ended | None = None


class _Device(msgspec.Struct):
    health: str = "Healthy"


class _Allocated(msgspec.Struct):
    name: str = ""
    resources: list[_Device] | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    state: _State = msgspec.field(default_factory=_State)
    allocated_resources_status: list[_Allocated] | None = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    observed_generation: int = 0
    reason: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _Wire(msgspec.Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a task's main container ended; ``message`` is the last line of its output, or ""."""

    code: int
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """The operator's own observations of a pod, by its own clock, in seconds since the epoch; 0.0: not yet."""

    since: float = 0.0
    ended_at: float = 0.0
    leaving_since: float = 0.0
    #: The end came before the deletion request: the operator saw it so, or the pod's own status proves it.
    ended_first: bool = False
    leaving_generation: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, in the fields that a decision or the status reads."""

    KIND: ClassVar = "Pod"
    meta: Meta
    phase: str
    ready: bool
    disrupted: bool
    reason: str
    node: str
    #: The healthy devices that the kubelet granted, by resource; None if the server does not report them.
    devices: Mapping[str, int] | None
    #: The main cause why the pod is not ready.
    trouble: str
    exit: Exit | None = None
    resolver: str = ""
    #: No container runs; the kubelet reports this a second or two before it changes the phase.
    at_rest: bool = False
    group: str = ""
    #: While it is being deleted, which increments it, and the one in the kubelet's status then (KEP-5067); else 0.
    generation: int = 0
    told_of: int = 0
    noted: Noted = field(default_factory=Noted)

    def seen(self, before: "Pod | None", now: float) -> "Pod":
        """Return this pod with the operator's observations, now and earlier."""
        known = before.noted if before is not None else Noted()
        # The generation when the operator first saw the pod terminate: every later edit increments it, too.
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

    def _asked_to_go(self, before: "Pod | None", now: float) -> float:
        """Return since when a pod that is first seen terminating has been so; another operator might have seen it."""
        asked = self.meta.asked_to_go_at
        return asked if before is None and now - _BELIEVED < asked < now else now

    @property
    def told(self) -> str:
        """The digest of the view that the pod was notified of, see :mod:`~tfcluster_operator.objects.config_map`."""
        return self.meta.annotations.get(naming.ANNOTATION_VIEW, "")

    @property
    def attempt(self) -> int:
        """How often the task failed in a row before this pod; 0 if the annotation is missing or invalid."""
        return self._number(naming.ANNOTATION_ATTEMPT)

    @property
    def incarnation(self) -> int:
        """How often the job had been restarted as a whole when the pod was created."""
        return self._number(naming.ANNOTATION_INCARNATION)

    @property
    def chosen_scheduler(self) -> str:
        """The scheduler that was chosen for it when it was created, "" if the template or Kubernetes chose it."""
        return self.meta.annotations.get(naming.ANNOTATION_SCHEDULER, "")

    @property
    def is_replacement(self) -> bool:
        """Whether it is not the first pod of its task."""
        return naming.ANNOTATION_REPLACEMENT in self.meta.annotations

    @property
    def surplus_since(self) -> int:
        """When the pod was found to be no longer declared, in seconds since the epoch; 0 if it is declared."""
        return self._number(naming.ANNOTATION_SURPLUS_SINCE)

    @property
    def ended(self) -> bool:
        """Whether the task's program has ended, for any reason."""
        return self.exit is not None or self.phase in ("Succeeded", "Failed")

    @property
    def serving(self) -> bool:
        """Whether the task runs, is ready, and is not being deleted."""
        return self.ready and self.phase == "Running" and self.exit is None and not self.meta.terminating

    def _number(self, annotation: str) -> int:
        text = self.meta.annotations.get(annotation, "0")
        if text == "0":
            return 0
        return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER else 0

    @property
    def listening(self) -> bool:
        """Whether a program in the pod can read the view now, so that the pod must be notified of a change."""
        return self.phase in ("Pending", "Running") and not self.meta.terminating and self.exit is None


#: The reason that Kubernetes sets on a pod that ran longer than its template's activeDeadlineSeconds.
OUT_OF_TIME: Final = ("DeadlineExceeded",)


class Ending(Enum):
    """How a pod ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"


def ending_of(pod: Pod) -> Ending | None:
    """Classify the end of a pod; None while its task runs, and for an end after the request to delete the pod."""
    # The exit code after SIGTERM proves nothing.  Nor do times: the end has the node's clock, the request the API
    # server's; so an earlier end counts if the operator saw it then, or the pod's own status proves it.
    if not pod.ended:
        return None
    if pod.meta.terminating and not pod.noted.ended_first:
        return None
    if pod.disrupted or pod.surplus_since:
        return Ending.DISRUPTED
    good = pod.exit.code == 0 if pod.exit is not None else pod.phase == "Succeeded"
    if pod.phase == "Failed" and pod.reason in OUT_OF_TIME:
        good = False  # the kubelet ended it: the exit code after SIGTERM proves nothing
    return Ending.SUCCEEDED if good else Ending.FAILED


#: An exit code above this encodes the signal that killed the program, as in shells and container runtimes.
SIGNALLED: Final = 128
LAST_SIGNALLED: Final = SIGNALLED + 64
_KILLED: Final = SIGNALLED + 9


def name_of(end: Exit | None, pod_reason: str = "") -> str:
    """Return the name of a failure in one CamelCase word: OOMKilled, KilledBySignal, or the reason of Kubernetes."""
    if end is None or pod_reason in OUT_OF_TIME:
        return pod_reason or "Failed"
    if end.reason == "OOMKilled":
        return end.reason
    if SIGNALLED < end.code <= LAST_SIGNALLED:
        return "KilledBySignal"
    return end.reason if end.reason not in {"", "Completed"} else "Error"


def words_for(pod: Pod) -> str:
    """Return a message about how a pod failed: the name, the exit code or signal, and its last line of output."""
    end = pod.exit
    if end is None:
        return pod.reason or "no exit code is known"
    name = name_of(end, pod.reason)
    if name == "KilledBySignal":
        words = f"killed by signal {end.code - SIGNALLED} (exit code {end.code})"
    elif name == "OOMKilled":
        words = f"OOMKilled: it used more memory than its limit (exit code {end.code})"
    else:
        words = f"exit code {end.code}" + (f", {name}" if name not in {"Error", "Completed"} else "")
    # A killed program cannot write why it ended: its last output is about something else.
    return f"{words}: {end.message}" if end.message and end.code != _KILLED else words


def change_of_pod(pod: Pod, *, labels: Mapping[str, str], view_digest: str) -> dict[str, Any] | None:
    """Return the patch that corrects a pod's labels and notifies it of its view, or None if nothing differs."""
    # The pod might have been surplus and is declared again; or be marked as kept, whose failures are counted already.
    annotations = {
        naming.ANNOTATION_SURPLUS_SINCE: None,
        **({naming.ANNOTATION_VIEW: view_digest} if pod.listening else {}),
    }
    return base.change_of(pod.meta, labels={**labels, naming.LABEL_KEPT: None}, annotations=annotations)


def _read(wire: _Wire, scheduler: GangScheduler) -> Pod:
    status, about, group = wire.status, wire.metadata, wire.spec.scheduling_group
    named = "" if group is None else group.pod_group_name
    makers = (about.uid, *(owner.uid for owner in about.owner_references or () if owner.controller))
    conditions = {condition.type: condition for condition in status.conditions or ()}
    disruption = conditions.get("DisruptionTarget", Condition())
    ended = [one.state.terminated for one in status.container_statuses or () if one.state.terminated is not None]
    end = _exit(wire)
    taken = status.reason not in _OWN_ENDS or disruption.status == "True"
    leaving = wire.metadata.deletion_timestamp is not None
    return Pod(
        meta=Meta.read(wire.metadata),
        phase=intern(status.phase),
        ready=conditions.get("Ready", Condition()).status == "True",
        disrupted=taken or (end is not None and end.reason in _UNSEEN_ENDS),
        reason=status.reason or disruption.reason,
        node=intern(wire.spec.node_name),
        devices=_devices(status),
        trouble=_trouble(status, conditions),
        exit=end,
        at_rest=status.phase in ("Succeeded", "Failed") or 0 < len(ended) == len(wire.spec.containers),
        resolver=_resolver(wire.spec.volumes or ()),
        group=intern(scheduler.group_of(about.labels or {}, about.annotations or {}, named, makers)),
        generation=wire.metadata.generation if leaving else 0,
        told_of=_generation_told_of(wire, conditions) if leaving else 0,
    )


def _generation_told_of(wire: _Wire, conditions: Mapping[str, Condition]) -> int:
    return wire.status.observed_generation or conditions.get("Ready", Condition()).observed_generation


def _resolver(volumes: Iterable[_Volume]) -> str:
    sources = (volume.config_map for volume in volumes if volume.name == naming.RESOLVER_VOLUME)
    return intern(next((source.name for source in sources if source is not None), ""))


def _exit(pod: _Wire) -> Exit | None:
    """Return how the main container ended; if it never ran, how a failed init or other container did."""
    # An admission webhook might have inserted a container before it: its name was noted when the pod was built.
    noted = (pod.metadata.annotations or {}).get(naming.ANNOTATION_MAIN_CONTAINER, "")
    names = [one.name for one in pod.spec.containers]
    main = noted if noted in names else choose_main(names)
    over = pod.status.phase in ("Succeeded", "Failed")
    if not over and any(one.name == main and one.restart_policy for one in pod.spec.containers):
        return None  # the kubelet restarts it by the container's own rules
    statuses = pod.status.container_statuses or []
    for one in statuses:
        if one.name == main and one.state.terminated is not None:
            return _as_exit(one.state.terminated)
    if pod.status.phase != "Failed":
        return None
    others = (*(pod.status.init_container_statuses or ()), *statuses)
    failed = (one.state.terminated for one in others if one.state.terminated is not None)
    return next((_as_exit(one) for one in failed if one.exit_code), None)


def _as_exit(ended: _Ended) -> Exit:
    # The last line of a log might be only a bracket.
    lines = [line.strip() for line in ended.message.splitlines() if any(map(str.isalnum, line))]
    return Exit(code=ended.exit_code, reason=ended.reason, message=lines[-1][:200] if lines else "")


def _devices(status: _Status) -> Mapping[str, int] | None:
    told: dict[str, int] | None = None
    for container in status.container_statuses or ():
        for allocated in container.allocated_resources_status or ():
            told = told if told is not None else {}
            healthy = sum(device.health != "Unhealthy" for device in allocated.resources or ())
            told[allocated.name] = told.get(allocated.name, 0) + healthy
    return told


def _trouble(status: _Status, conditions: Mapping[str, Condition]) -> str:
    since = conditions.get("Ready", Condition()).last_transition_time
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in _ORDINARY_WAITING:
            # The two alternate while an image is not found; the message of the second has the cause as well.
            reason = "ImagePullBackOff" if waiting.reason == "ErrImagePull" else waiting.reason
            return _told(reason, since, waiting.message)
    scheduled = conditions.get("PodScheduled", Condition())
    if scheduled.status == "False":
        return _told(scheduled.reason, scheduled.last_transition_time, scheduled.message)
    return status.reason


def _told(reason: str, since: str | None, message: str) -> str:
    # Since when, not for how long: a message that changes by itself would be written again and again.
    when = f"{reason} since {since[11:19]} UTC" if since else reason
    return f"{when}: {shortened(message)}" if message else when


def _first_names(cluster: TFCluster, _: Iterable[Child]) -> Iterator[str]:
    for job in cluster.jobs:
        yield from naming.first_pod_names(cluster.name, job.name, job.replicas)


def kind_for(scheduler: GangScheduler) -> Kind:
    """Build the row of the pods, which name their PodGroup as the given scheduler requires."""
    return base.kind_of(Pod, "pods", _Wire, partial(_read, scheduler=scheduler), _first_names)


KIND: Final = kind_for(KUBERNETES)
