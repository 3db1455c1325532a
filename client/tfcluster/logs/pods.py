"""The state of a pod's log: whether it exists, whether more lines can come, and how the pod ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tfcluster.kube.api import Object
from tfcluster.tasks import TaskName, controller_of, task_of
from tfcluster_operator.declaration import naming, spec

#: ``waiting``: no log yet. ``running``: more lines can come. ``ended``: the log is complete.
State = Literal["waiting", "running", "ended"]
#: The kubelet's reasons of a container that is about to start, with the message for each.
_ON_ITS_WAY = {"ContainerCreating": "its container is being created", "PodInitializing": "it is being initialized"}


@dataclass(frozen=True, slots=True)
class LogPod:
    """A pod and the state of its log; ``container`` is "" if it does not have the requested one."""

    task: TaskName
    uid: str
    name: str
    #: When it was created, and the number in its name: the pods of a task are sorted by it.
    born: tuple[str, int] = ("", 0)
    kept: bool = False
    container: str = spec.MAIN_CONTAINER
    state: State = "running"
    #: Whether the container has ever run, and whether an earlier container of the same pod has left a log.
    readable: bool = True
    restarted: bool = False
    #: Why it waits, or how it ended, and whether it waits for a user's action.
    words: str = ""
    stuck: bool = False
    leaving: bool = False


def log_pods(cluster_uid: str, pods: Iterable[Object], container: str = "") -> list[LogPod]:
    """Return the pods of a cluster, those of each task in order of creation."""
    found = []
    for pod in pods:
        task = task_of(pod)
        if task is not None and controller_of(pod) == cluster_uid:
            found.append(log_pod(task, pod, container))
    return sorted(found, key=lambda one: (one.task, one.born))


def log_pod(task: TaskName, pod: Object, container: str = "") -> LogPod:
    metadata, status = pod["metadata"], pod.get("status") or {}
    names = containers(pod)
    annotated = (metadata.get("annotations") or {}).get(naming.ANNOTATION_MAIN_CONTAINER, "")
    main = annotated if annotated in names else spec.choose_main([one["name"] for one in pod["spec"]["containers"]])
    chosen = container or main
    final = status.get("phase") in {"Succeeded", "Failed"}
    told = next((one for one in _statuses(status) if one["name"] == chosen), {})
    state, readable = _state_of(told, final=final, again=_is_restarted(pod, chosen))
    labels = metadata.get("labels") or {}
    leaving = "deletionTimestamp" in metadata
    why, stuck = _waits_for(status, told) if state == "waiting" else (_ended_by(status, told, leaving=leaving), False)
    return LogPod(
        task=task,
        uid=metadata["uid"],
        name=metadata["name"],
        born=(metadata.get("creationTimestamp", ""), naming.first_pod_name(metadata["name"])[1]),
        kept=naming.LABEL_KEPT in labels and status.get("phase") == "Failed",
        container=chosen if chosen in names else "",
        state=state,
        readable=readable,
        restarted=int(told.get("restartCount", 0)) > 0,
        words=why,
        stuck=stuck,
        leaving=leaving,
    )


def containers(pod: Object) -> list[str]:
    kinds = ("containers", "initContainers", "ephemeralContainers")
    return [one["name"] for kind in kinds for one in pod["spec"].get(kind) or ()]


def _statuses(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        yield from status.get(kind) or ()


def _is_restarted(pod: Object, container: str) -> bool:
    """Return whether the kubelet restarts a container: only sidecars, because pods have restartPolicy Never."""
    sidecars = pod["spec"].get("initContainers") or ()
    return any(one["name"] == container and one.get("restartPolicy") == "Always" for one in sidecars)


def _state_of(told: Mapping[str, Any], *, final: bool, again: bool) -> tuple[State, bool]:
    state = told.get("state") or {}
    ran = bool((told.get("lastState") or {}).get("terminated"))
    if "terminated" in state:
        return ("running" if again and not final else "ended"), True
    if "running" in state:
        return "running", True
    if final:
        return "ended", ran
    return ("running", True) if ran else ("waiting", False)


def _waits_for(status: Mapping[str, Any], told: Mapping[str, Any]) -> tuple[str, bool]:
    """Return why a container has not started, and whether that needs a user's action."""
    waiting = (told.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason", ""), " ".join(str(waiting.get("message", "")).split())
    if reason and reason not in _ON_ITS_WAY:
        return (f"{reason}: {message}" if message else reason), True
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return ": ".join(part for part in (one.get("reason", ""), one.get("message", "")) if part), True
    for one in status.get("initContainerStatuses") or ():
        if "running" in (one.get("state") or {}) and not one.get("ready"):
            return f"its init container {one['name']} is running", False
    return _ON_ITS_WAY.get(reason, "it is not scheduled yet" if not status.get("hostIP") else "it is starting"), False


def _ended_by(status: Mapping[str, Any], told: Mapping[str, Any], *, leaving: bool) -> str:
    """Return how a pod ended, or why it is about to."""
    over = (told.get("state") or {}).get("terminated") or {}
    for one in status.get("conditions") or ():
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            message = one.get("message") or status.get("message") or one.get("reason", "")
            return f"was taken away: {message}".strip()
    if status.get("reason"):
        return f"was taken away: {status.get('message') or status['reason']}"
    if over and not leaving:
        code, reason = over.get("exitCode", 0), over.get("reason", "")
        if not code:
            return "ended with exit code 0"
        return f"failed with exit code {code}" + (f", {reason}" if reason not in {"", "Error"} else "")
    return "was deleted" if leaving else ""
