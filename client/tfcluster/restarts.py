"""What a restart does: a task gets a new pod; a job's template is marked, so that updateStrategy decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.changes import Change, about_manager, check_alive, count
from tfcluster.errors import NotRunningError, TFClusterError
from tfcluster.picture import picture_of
from tfcluster.task_names import TaskName, spell
from tfcluster.task_picture import TaskPicture
from tfcluster_operator.declaration.ledger import timestamp
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import TFCluster

#: What a restart notes in a job's template, as ``kubectl rollout restart`` does: who knows that knows this.
RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"

#: The states of a task whose pod can be replaced.
_REPLACEABLE: Final = ("Ready", "NotReady", "Pending")
#: The states of a task that is started again without anybody's doing.
_ON_THE_WAY: Final = {
    "Terminating": "its pod terminates already, and is replaced then",
    "StuckTerminating": "its pod terminates already, and is replaced when its node tells that it has ended",
    "Disrupted": "its pod was taken away, and is replaced already",
    "BackingOff": "it has failed, and is started again by itself",
    "Failed": "it has failed, and is started again by itself",
    "Missing": "it has no pod yet, and gets one",
}


@dataclass(frozen=True, slots=True)
class Replacement:
    """The pod of a task that is to be replaced.

    Attributes:
        pod: its name.
        uid: its UID.
        words: what will happen.
    """

    pod: str
    uid: str
    words: tuple[str, ...]


def restart_of_jobs(body: Mapping[str, Any], jobs: Sequence[str], at: float) -> Change:
    """Decide a restart of whole jobs.

    Raises:
        NotRunningError: the cluster has finished, is suspended or being deleted.
        TFClusterError: its spec cannot be read.
    """
    _check(body)
    try:
        cluster = parse(body)
    except InvalidSpecError as error:
        raise TFClusterError(f"the spec cannot be used: {'; '.join(error.problems)}") from error
    told = (body.get("status") or {}).get("jobs") or {}
    words: list[str] = []
    for job in jobs:
        complete = int((told.get(job) or {}).get("succeeded") or 0)
        words.append(f"{job}: {_how(cluster, job, body['metadata']['name'])}")
        if complete:
            words.append(f"{job}: {count(complete, 'task')} that ended with exit code 0 do not run again.")
    mark = {"metadata": {"annotations": {RESTARTED_AT: timestamp(at)}}}
    return Change({"spec": {"jobs": {job: {"template": mark} for job in jobs}}}, (*words, *about_manager(body)))


def _how(cluster: TFCluster, job: str, name: str) -> str:
    replicas = next(one.replicas for one in cluster.jobs if one.name == job)
    strategy = cluster.update_strategy
    tasks = f"its {count(replicas, 'task')}"
    if strategy.type == "OnDelete":
        return (
            "updateStrategy is OnDelete, so each pod stays until somebody deletes it: "
            f"tfcluster restart {name} {spell(job, 0)}, and so on."
        )
    if strategy.type == "RollingUpdate":
        return (
            f"{tasks} are replaced from the highest index down, "
            f"{count(strategy.within(replicas), 'task')} at a time (updateStrategy)."
        )
    how = "is replaced" if replicas == 1 else "are replaced together (updateStrategy)"
    return f"{tasks} {how}. This counts as no failure."


def restart_of_task(
    body: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], task: TaskName, now: float
) -> Replacement:
    """Decide a restart of one task.

    Returns:
        The pod that is to be deleted; its name is "" where the task is started again without that.

    Raises:
        NotRunningError: the cluster has finished, is suspended or being deleted, or the task is complete or has not
            started yet.
    """
    _check(body)
    found = _picture_of(body, pods, task, now)
    name = body["metadata"]["name"]
    if found.state == "Completed":
        raise NotRunningError(
            f"{task} is complete: it ended with exit code 0, and is not run again",
            hint=f"To run every task again, from the beginning: tfcluster suspend {name} --wait, "
            f"tfcluster resume {name}.",
        )
    if found.state in _ON_THE_WAY:
        cause = f" ({found.cause})" if found.cause and found.state != "Missing" else ""
        return Replacement("", "", (f"{task}: {_ON_THE_WAY[found.state]}{cause}.",))
    if found.state not in _REPLACEABLE:
        cause = found.cause or found.state
        raise NotRunningError(f"{task} has no pod: {cause}", hint=f"See it with `tfcluster status {name}`.")
    uid = next(str(pod["metadata"]["uid"]) for pod in pods if pod["metadata"]["name"] == found.pod)
    words = (
        f"{task}: pod {found.pod} is deleted, and replaced at the same address. It counts as replaced, not as failed."
    )
    return Replacement(found.pod, uid, (words, *about_manager(body)))


def _picture_of(body: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], task: TaskName, now: float) -> TaskPicture:
    for one in picture_of(body, pods, now=now).tasks():
        if (one.job, one.index) == (task.job, task.index):
            return one
    raise TFClusterError(
        f"the operator cannot use this TFCluster, so {task} has no pod",
        hint=f"See why with `tfcluster status {body['metadata']['name']}`.",
    )


def _check(body: Mapping[str, Any]) -> None:
    check_alive(body, "no task starts again")
    if body["spec"].get("suspend"):
        name = body["metadata"]["name"]
        raise NotRunningError(
            f"{name} is suspended: nothing runs that could be started again",
            hint=f"Start it with `tfcluster resume {name}`.",
        )
