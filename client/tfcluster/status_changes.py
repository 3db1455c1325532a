"""What changed between two pictures of a TFCluster, a line each: ``tfcluster status --watch`` on a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tfcluster.picture import Picture
from tfcluster.task_picture import TaskPicture

_GONE: Final = "gone"


def changes(before: Picture | None, after: Picture) -> Iterator[str]:
    """Tell what changed.

    Yields:
        A line for the cluster if its state, reason, count of ready tasks or epoch changed, and one for each task whose
        state, pod, reason, view or devices did.  Where there was none before: what is.
    """
    if before is None or _standing(before) != _standing(after):
        yield _of_cluster(after)
    known = {} if before is None else {task.name: task for task in before.tasks()}
    tasks = {task.name: task for task in after.tasks()}
    for name, task in tasks.items():
        if name not in known or _key(known[name]) != _key(task):
            yield f"{name}: {_from(known, name, task.state)}{_of_task(task)}"
    yield from (f"{name}: {_from(known, name, _GONE)}{_GONE}" for name in known if name not in tasks)


def changes_of_list(before: Mapping[str, Picture], after: Mapping[str, Picture]) -> Iterator[str]:
    """Tell what changed in a list of clusters, by namespace and name."""
    for key, picture in after.items():
        if key not in before or _standing(before[key]) != _standing(picture):
            yield f"{key}: {_of_cluster(picture)}"
    yield from (f"{key}: {_GONE}" for key in before if key not in after)


def _of_cluster(picture: Picture) -> str:
    standing = picture.standing
    why = f", {standing.reason}: {standing.message}" if standing.reason and standing.state != standing.reason else ""
    return f"{standing.state}, {picture.ready or '0/0'} ready, epoch {picture.epoch}{why}"


def _standing(picture: Picture) -> tuple[object, ...]:
    # NB: the words of one cause change from moment to moment: while an image is not found, two alternate.
    return picture.standing.state, picture.standing.reason, picture.ready, picture.epoch


def _key(task: TaskPicture) -> tuple[object, ...]:
    reason = task.cause.partition(":")[0]
    return task.state, task.pod, reason, task.view, task.devices


def _from(known: Mapping[str, TaskPicture], name: str, state: str) -> str:
    return f"{known[name].state} -> " if name in known and known[name].state != state else ""


def _of_task(task: TaskPicture) -> str:
    where = f", pod {task.pod}" if task.pod else ""
    node = f" on {task.node}" if task.node else ""
    view = ", its newest view is not delivered yet" if task.view == "waiting" else ""
    return f"{task.state}{where}{node}{view}{f': {task.cause}' if task.cause else ''}"
