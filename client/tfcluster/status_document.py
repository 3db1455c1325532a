"""What ``tfcluster status -o json`` and ``-o yaml`` print: the keys are stable, new ones may come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfcluster.picture import JobPicture, Picture
from tfcluster.task_picture import TaskPicture
from tfcluster_operator.declaration.ledger import timestamp


def document_of(picture: Picture) -> dict[str, Any]:
    """Spell a cluster for programs.

    Returns:
        ``name``, ``namespace``, ``state``, ``reason``, ``message``, ``notices``; ``ready`` ("3/4"), ``restarts``,
        ``backoffLimit``, ``epoch``, ``generation``, ``isolation``, ``accelerators``, ``queue`` (null where there is
        none); the times ``created``, ``started``, ``finished``, ``waitingSince`` (for quota, or for the places of a
        gang), ``deadline`` and ``deletedAt`` (null where there is none); ``lastRestart`` as in the status (null where
        there is none); ``gaps`` (what could not be looked at); ``jobs``, each with ``name``,
        ``desired``, ``ready``, ``completed``, ``restarts``, ``replaced`` and ``tasks``.  A task has ``name``, ``job``,
        ``index``, ``state``, ``cause``, ``pod``, ``node``, ``phase``, ``created``, ``restarts``, ``devices`` (by
        resource: ``requested``, ``granted``, ``healthy``), ``view``, ``outdated``, ``kept`` and ``nextTry``.
    """
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
    return {
        "name": job.name,
        "desired": job.desired,
        "ready": job.ready,
        "completed": job.completed,
        "restarts": job.restarts,
        "replaced": job.replaced,
        "tasks": [_task(task) for task in job.tasks],
    }


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
        "devices": {
            name: {"requested": one.requested, "granted": one.granted, "healthy": one.healthy}
            for name, one in sorted(task.devices.items())
        },
        "view": task.view or None,
        "outdated": task.outdated,
        "kept": list(task.kept),
        "nextTry": _time(task.next_try),
    }


def _time(seconds: float) -> str | None:
    return timestamp(seconds) if seconds else None
