"""The output of ``tfcluster status`` for programs (its keys are stable, new ones can be added), and of ``--watch``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tfcluster.status.picture import Picture, TaskPicture
from tfcluster_operator.declaration.ledger import timestamp


def document_of(picture: Picture) -> dict[str, Any]:
    return {
        **row_of(picture),
        "notices": list(picture.standing.notices),
        "gaps": list(picture.gaps),
        "tasks": [_task(task) for task in picture.tasks()],
    }


def row_of(picture: Picture) -> dict[str, Any]:
    """Return a cluster as an item of the list; ``status`` is that of the API."""
    return {
        "metadata": {
            "name": picture.name,
            "namespace": picture.namespace,
            "generation": picture.generation,
            "creationTimestamp": _time(picture.created),
        },
        "state": picture.standing.state,
        "reason": picture.standing.reason,
        "message": picture.standing.message,
        "status": {key: value for key, value in picture.status.items() if key != "internal"},
    }


def _task(task: TaskPicture) -> dict[str, Any]:
    return {
        "name": task.name,
        "job": task.job,
        "index": task.index,
        "state": task.state,
        "message": task.cause,
        "podName": task.pod or None,
        "nodeName": task.node or None,
        "phase": task.phase or None,
        "creationTimestamp": _time(task.since),
        "restarts": task.restarts,
        "devices": {name: asdict(one) for name, one in sorted(task.devices.items())},
        "view": task.view or None,
        "outdated": task.outdated,
        "keptPods": list(task.kept),
        "nextRetryTime": _time(task.next_try),
    }


def _time(seconds: float) -> str | None:
    return timestamp(seconds) if seconds else None
