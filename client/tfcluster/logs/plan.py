"""The state of each pod's log, and which logs should be open, given what there is and what was read: pure decisions.

The pods of a task follow each other, and so do their logs: the next is opened when all of the one before is out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from tfcluster.kube.api import Object
from tfcluster.tasks import TaskName, controller_of, declared, task_of, verdict
from tfcluster.terminal import few
from tfcluster_operator.declaration import naming, spec
from tfcluster_operator.report import conditions

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
    own = [(task, pod) for pod in pods if controller_of(pod) == cluster_uid and (task := task_of(pod)) is not None]
    return sorted((log_pod(*one, container) for one in own), key=lambda one: (one.task, one.born))


def log_pod(task: TaskName, pod: Object, container: str = "") -> LogPod:
    metadata, status = pod["metadata"], pod.get("status") or {}
    names = containers(pod)
    annotated = (metadata.get("annotations") or {}).get(naming.ANNOTATION_MAIN_CONTAINER, "")
    main = annotated if annotated in names else spec.choose_main([one["name"] for one in pod["spec"]["containers"]])
    chosen = container or main
    final = status.get("phase") in {"Succeeded", "Failed"}
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    told: Object = next((one for kind in kinds for one in status.get(kind) or () if one["name"] == chosen), {})
    # The kubelet restarts only sidecars, because pods have restartPolicy Never.
    init = pod["spec"].get("initContainers") or ()
    again = any(one["name"] == chosen and one.get("restartPolicy") == "Always" for one in init)
    state, readable = _state_of(told, final=final, again=again)
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


@dataclass(frozen=True, slots=True)
class Sight:
    """The TFCluster as seen last, the chosen tasks that are declared, and their pods, those of a task in order."""

    cluster: Object
    pods: Sequence[LogPod]
    tasks: Sequence[TaskName] = ()
    gone: bool = False


@dataclass(slots=True)
class Progress:
    """The steps that were done so far."""

    begun: bool = False
    #: UIDs of pods whose logs are being read, and of those whose logs are completely read or are not wanted.
    open: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    #: The keys of messages that were printed and must not be repeated.
    told: set[str] = field(default_factory=set)
    #: The pod of each task whose log was opened last, as it was seen last.
    last: dict[TaskName, LogPod] = field(default_factory=dict)
    #: The tasks that exist, or were declared at the beginning.
    tasks: set[TaskName] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Steps:
    """The logs to open, those to read to their end, to end when quiet, or to skip (UIDs of pods), and messages by key.

    ``done`` means that everything is read and no new line can come.
    """

    open: tuple[LogPod, ...] = ()
    over: frozenset[str] = frozenset()
    quiet: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    say: Mapping[str, str] = field(default_factory=dict)
    done: bool = False


def next_steps(sight: Sight, progress: Progress) -> Steps:
    """Decide the next steps while logs are followed."""
    name = sight.cluster["metadata"]["name"]
    over = bool(verdict(sight.cluster)) or sight.gone
    here = {pod.uid: pod for pod in sight.pods}
    skip = {pod.uid for pod in sight.pods if not progress.begun and pod.kept}
    skip |= {pod.uid for pod in sight.pods if not pod.container or (pod.state == "ended" and not pod.readable)}
    read = progress.read | skip
    wanted = list(_wanted(sight.pods, progress.open, read))
    say: dict[str, str] = {}
    for pod in sight.pods:
        if progress.begun and pod.uid not in progress.read and pod.container:
            say |= _of_new_pod(pod, progress)
        if not pod.container:
            say[f"lacks {pod.uid}"] = f"{pod.task}: pod {pod.name} does not have this container"
    say |= {} if sight.gone else _of_leaving(sight, progress)
    if not progress.begun and (words := without_pods(sight.tasks, sight.pods, sight.cluster)):
        say["absent"] = words
    if not over:
        say |= _of_waiting(sight, progress)
    elif sight.gone:
        say["gone"] = f"TFCluster {name} was deleted"
    gone = frozenset(uid for uid in progress.open if uid not in here)
    ended = frozenset(uid for uid in progress.open if uid in here and here[uid].state == "ended")
    lasting = {uid for uid in progress.open - ended if over and uid in here and not here[uid].leaving}
    done = over and not progress.open and not wanted
    if done and not sight.gone:
        say["verdict"] = f"TFCluster {name} has {verdict(sight.cluster)}"
    fresh = {key: words for key, words in say.items() if key not in progress.told}
    return Steps(tuple(wanted), ended | gone, gone | lasting, frozenset(skip), fresh, done)


def _wanted(pods: Sequence[LogPod], open_: set[str], read: set[str]) -> Iterator[LogPod]:
    """Return, for each task without an open log, the next pod that has one."""
    for _, group in groupby(pods, key=lambda pod: pod.task):
        left = [pod for pod in group if pod.uid not in read]
        if left and left[0].state != "waiting" and not any(pod.uid in open_ for pod in left):
            yield left[0]


def _of_new_pod(pod: LogPod, progress: Progress) -> dict[str, str]:
    before = progress.last.get(pod.task)
    if before is None and pod.task not in progress.tasks:
        return {f"joins {pod.uid}": f"{pod.task} joins: pod {pod.name}"}
    if before is None or before.uid == pod.uid or before.uid not in progress.read:
        return {}
    goes_on = f"continues in {pod.name}" if pod.name != before.name else "continues in a new pod of that name"
    return {f"follows {pod.uid}": f"{pod.task}: pod {before.name} {before.words or 'is gone'}; the task {goes_on}"}


def _of_leaving(sight: Sight, progress: Progress) -> dict[str, str]:
    jobs, said = declared(sight.cluster), {}
    for task in progress.last.keys() - {pod.task for pod in sight.pods}:
        if task.index >= jobs.get(task.job, 0):
            now = f"{task.job} has {jobs[task.job]} tasks now" if task.job in jobs else f"job {task.job} was removed"
            said[f"leaves {progress.last[task].uid}"] = f"{task} is no longer declared: {now}"
    return said


def _of_waiting(sight: Sight, progress: Progress) -> dict[str, str]:
    """Report why pods wait: at the beginning for all, later only for those that do not resolve on their own."""
    said: dict[str, str] = {}
    name, spec = sight.cluster["metadata"]["name"], sight.cluster.get("spec") or {}
    if spec.get("suspend"):
        return {"suspended": _suspended(name)} if progress.begun else {}
    waiting = [pod for pod in sight.pods if pod.state == "waiting" and (pod.stuck or not progress.begun)]
    for line, pods in not_started([pod for pod in waiting if _key(pod) not in progress.told]):
        # Their common line has the key of the first; the other keys get an empty line.
        said |= {_key(pod): line if pod is pods[0] else "" for pod in pods}
    return said


def _suspended(name: str) -> str:
    return f"TFCluster {name} is suspended; `tfcluster resume {name}` starts it"


def not_started(pods: Sequence[LogPod]) -> Iterator[tuple[str, list[LogPod]]]:
    """Report why pods have not started, in one line for the same reason."""
    for words, group in groupby(sorted(pods, key=lambda pod: (pod.words, pod.task)), key=lambda pod: pod.words):
        alike = list(group)
        yield f"{few([pod.task for pod in alike])}: not started: {words}", alike


def _key(pod: LogPod) -> str:
    return f"waits {pod.uid} {pod.words.partition(':')[0]}"


def without_pods(tasks: Sequence[TaskName], pods: Sequence[LogPod], cluster: Object) -> str:
    """Report which tasks do not have a pod, and the reason if it is known; "" if all have one."""
    present = {pod.task for pod in pods}
    missing = [task for task in tasks if task not in present]
    if not missing:
        return ""
    name = cluster["metadata"]["name"]
    if (cluster.get("spec") or {}).get("suspend"):
        why = _suspended(name)
    elif how := verdict(cluster):
        why = f"TFCluster {name} has {how}; spec.cleanPodPolicy says which pods stay after that"
    else:
        found = conditions.by_type(cluster.get("status") or {}).get("Ready", {})
        why = found.get("message", "") if found.get("status") == "False" else ""
        why = why or "the operator has not created it yet; `tfcluster doctor` looks into it"
    return f"{few(missing)}: no pod: {why}"
