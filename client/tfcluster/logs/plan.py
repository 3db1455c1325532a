"""Which logs should be open, given what there is and what was read: a pure decision.

The pods of a task follow each other, and so do their logs: the next is opened when all of the one before is out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from tfcluster.kube.api import Object
from tfcluster.logs.pods import LogPod
from tfcluster.tasks import TaskName, declared, verdict
from tfcluster.terminal import few
from tfcluster_operator.report import conditions

_NAMED: Final = 4


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


def next_steps(sight: Sight, progress: Progress, *, limit: int) -> Steps:
    """Decide the next steps while logs are followed."""
    name = sight.cluster["metadata"]["name"]
    over = bool(verdict(sight.cluster)) or sight.gone
    here = {pod.uid: pod for pod in sight.pods}
    skip = {pod.uid for pod in sight.pods if not progress.begun and pod.kept}
    skip |= {pod.uid for pod in sight.pods if not pod.container or (pod.state == "ended" and not pod.readable)}
    read = progress.read | skip
    wanted = list(_wanted(sight.pods, progress.open, read))
    room = max(0, limit - len(progress.open))
    opened = wanted[:room]
    say: dict[str, str] = {}
    for pod in sight.pods:
        if progress.begun and pod.uid not in progress.read and pod.container:
            say |= _of_new_pod(pod, progress)
        if not pod.container:
            say[f"lacks {pod.uid}"] = f"{pod.task}: pod {pod.name} does not have this container"
    say |= {} if sight.gone else _of_leaving(sight, progress)
    if wanted[room:]:
        crowd = f"{few([pod.task for pod in wanted[room:]], _NAMED)}: not followed yet, as {limit} logs are open"
        say["crowd"] = f"{crowd}; --max-log-requests allows more"
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
    return Steps(tuple(opened), ended | gone, gone | lasting, frozenset(skip), fresh, done)


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
    jobs = declared(sight.cluster)
    present = {pod.task for pod in sight.pods}
    gone = [task for task in progress.last if task not in present and task.index >= jobs.get(task.job, 0)]
    return {
        f"leaves {progress.last[task].uid}": f"{task} is no longer declared: "
        + (f"{task.job} has {jobs[task.job]} tasks now" if task.job in jobs else f"job {task.job} was removed")
        for task in gone
    }


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
        yield f"{few([pod.task for pod in alike], _NAMED)}: not started: {words}", alike


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
    return f"{few(missing, _NAMED)}: no pod: {why}"
