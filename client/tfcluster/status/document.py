"""What ``tfcluster status`` prints for programs (the keys are stable, new ones may come), and for ``--watch``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from tfcluster.status.picture import JobPicture, Picture, TaskPicture
from tfcluster_operator.declaration.ledger import timestamp


def document_of(picture: Picture) -> dict[str, Any]:
    return {
        **row_of(picture),
        "notices": list(picture.standing.notices),
        "backoffLimit": picture.backoff_limit,
        "generation": picture.generation,
        "isolation": picture.isolation,
        "accelerators": picture.accelerators,
        "queue": picture.queue or None,
        "started": _time(picture.started),
        "finished": _time(picture.finished),
        "waitingSince": _time(picture.waiting_since),
        "deadline": _time(picture.deadline),
        "deletedAt": _time(picture.deleted_at),
        "lastRestart": dict(picture.last_restart) or None,
        "gaps": list(picture.gaps),
        "jobs": [_job(job) for job in picture.jobs],
    }


def row_of(picture: Picture) -> dict[str, Any]:
    """Spell a cluster in short, as a list of all has it."""
    return {
        "name": picture.name,
        "namespace": picture.namespace,
        "state": picture.standing.state,
        "reason": picture.standing.reason,
        "message": picture.standing.message,
        "ready": picture.ready,
        "restarts": picture.restarts,
        "epoch": picture.epoch,
        "created": _time(picture.created),
    }


def list_of(pictures: Iterable[Picture]) -> dict[str, Any]:
    """Spell a list of clusters: ``clusters``, each in short."""
    return {"clusters": [row_of(one) for one in pictures]}


def _job(job: JobPicture) -> dict[str, Any]:
    counts = ("name", "desired", "ready", "completed", "restarts", "replaced")
    return {**{name: getattr(job, name) for name in counts}, "tasks": [_task(task) for task in job.tasks]}


def _task(task: TaskPicture) -> dict[str, Any]:
    return {
        "name": task.name,
        "job": task.job,
        "index": task.index,
        "state": task.state,
        "cause": task.cause,
        "pod": task.pod or None,
        "node": task.node or None,
        "phase": task.phase or None,
        "created": _time(task.since),
        "restarts": task.restarts,
        "devices": {name: asdict(one) for name, one in sorted(task.devices.items())},
        "view": task.view or None,
        "outdated": task.outdated,
        "kept": list(task.kept),
        "nextTry": _time(task.next_try),
    }


def _time(seconds: float) -> str | None:
    return timestamp(seconds) if seconds else None


_GONE: Final = "gone"


def changes(before: Picture | None, after: Picture) -> Iterator[str]:
    """Tell what changed, a line for the cluster and one for each task; where there was none before, what is."""
    if before is None or _standing(before) != _standing(after):
        yield _of_cluster(after)
    known = {} if before is None else {task.name: task for task in before.tasks()}
    tasks = {task.name: task for task in after.tasks()}
    for name, task in tasks.items():
        if name not in known or _key(known[name]) != _key(task):
            yield f"{name}: {_from(known, name, task.state)}{_of_task(task)}"
    yield from (f"{name}: {_from(known, name, _GONE)}{_GONE}" for name in known if name not in tasks)


def changes_of_list(before: Iterable[Picture], after: Iterable[Picture]) -> Iterator[str]:
    """Tell what changed in a list of clusters, by namespace and name."""
    old, new = ({f"{one.namespace}/{one.name}": one for one in of} for of in (before, after))
    for key, picture in new.items():
        if key not in old or _standing(old[key]) != _standing(picture):
            yield f"{key}: {_of_cluster(picture)}"
    yield from (f"{key}: {_GONE}" for key in old if key not in new)


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
