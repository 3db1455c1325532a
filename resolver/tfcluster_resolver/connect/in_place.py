"""Changing the cluster of a process that is connected, without a new connection: ``on_change="update"``.

It decides what such a change may be: what lives on the tasks that stay goes on, so tasks may come, and those may go or
move on which nothing of this process lives.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Collection
from typing import Any, Final

from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.connect.target import Target
from tfcluster_resolver.errors import ClusterChangedError, TasksUnreachableError

#: How many of the things that are in the way are named.
_NAMED: Final = 10


def permit(
    target: Target, connection: tensorflow_api.Connection, first: Collection[tuple[str, int]], changed: str
) -> None:
    """Let the cluster of this process change, if that is sound.

    Args:
        target: what it is to be.
        connection: what it is connected to.
        first: job and index of the tasks whose device filters TensorFlow has; later ones would not hold.
        changed: says both, for the error.

    Raises:
        ClusterChangedError: this process would be another task, or have another address; something of it lives on a
            task that goes; the filters of a new task would not hold; or it has a ClusterCoordinator, which
            ``resize()`` changes.
        RestartNeededError: this TensorFlow cannot be resized in place.
    """
    private = importlib.import_module("tfcluster_resolver._tensorflow.private")
    before, after = _addresses(connection.spec), _addresses(target.spec)
    own = (target.job, target.index)
    if (connection.job, connection.index) != own or before.get(own) != after.get(own):
        raise ClusterChangedError(f"{changed}. A process cannot become another task: start it again")
    if private.has_coordinator():
        raise ClusterChangedError(f"{changed}. It has a ClusterCoordinator: call resize() or follow() with it instead")
    late = after.keys() - before.keys() - set(first)
    bare = [f"/job:{job}/task:{index}" for job, index in sorted(late) if target.filters.get(job, {}).get(index)]
    if bare:
        raise ClusterChangedError(
            f"{changed}. The device filters of {', '.join(bare[:_NAMED])} would not hold: TensorFlow keeps those that "
            "it got when this process connected. Connect with a view that declares maxReplicas"
        )
    gone = [f" on /job:{task[0]}/replica:0/task:{task[1]}/" for task, at in before.items() if after.get(task) != at]
    held = [text for text in tensorflow_api.held_elsewhere(target.job) if any(task in text for task in gone)]
    if held:
        more = f" and {len(held) - _NAMED} more" if len(held) > _NAMED else ""
        raise ClusterChangedError(
            f"{changed}. What lives on the tasks that go would be lost: {', '.join(held[:_NAMED])}{more}. Drop it, or "
            "save it in a checkpoint and start this process again"
        )


def update(target: Target, timeout: float) -> bool:
    """Change the cluster of this process; its tasks answered a moment ago.

    Args:
        target: what it is to be, as :func:`permit` let it.
        timeout: how long to wait for TensorFlow, in seconds.

    Returns:
        Whether there was something to change.

    Raises:
        TasksUnreachableError: TensorFlow waits for a task that answers no more.
    """
    connection = tensorflow_api.connected_to(target.spec.jobs)
    if connection is None or connection.spec == target.spec:
        return False
    private = importlib.import_module("tfcluster_resolver._tensorflow.private")
    wanted = private.server_def()
    own = [job for job in wanted.cluster.job if job.name not in target.spec.jobs and job.name == wanted.job_name]
    wanted.cluster.CopyFrom(target.spec.as_cluster_def())
    wanted.cluster.job.extend(own)
    raised: list[Exception] = []
    done = threading.Event()

    def change() -> None:
        try:
            private.update(wanted)
        except Exception as error:  # noqa: BLE001 - raised below
            raised.append(error)
        done.set()

    threading.Thread(target=change, name="tfcluster-update", daemon=True).start()
    if not done.wait(min(timeout, threading.TIMEOUT_MAX)):
        raise TasksUnreachableError(
            f"TensorFlow did not change the cluster of this process within {timeout:g} s: it waits for a task that "
            "answers no more, and goes on when that is back. Until then, use nothing on the new tasks"
        )
    if raised:
        raise raised[0]
    return True


def _addresses(spec: Any) -> dict[tuple[str, int], str]:
    return {(job, index): spec.task_address(job, index) for job in spec.jobs for index in spec.task_indices(job)}
