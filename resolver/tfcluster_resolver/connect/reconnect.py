"""Connecting a process that is connected already: a repair, a refusal, or a reset.

It decides which of them is sound.  TensorFlow repairs the connection to an unchanged cluster and keeps everything.  To
a changed one it makes a new connection, and then any use of what lives on an old task kills the process; and it never
closes the server that a process opened on its own port, so a task of the ClusterSpec cannot open it a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.connect import in_place
from tfcluster_resolver.connect.target import LOCALHOST, Target
from tfcluster_resolver.device_filters import filters_in_message
from tfcluster_resolver.errors import ClusterChangedError, ConnectedTooLateError
from tfcluster_resolver.waiting import own_port

_Filters = Mapping[str, Mapping[int, tuple[str, ...]]]

#: The filters that this process's TensorFlow was given first, by job and index: it keeps them to its end.
_first_filters: Final[dict[tuple[str, int], tuple[str, ...]]] = {}

#: The clusters that this process was connected to here.
_remembered: Final[set[str]] = set()

#: How many of the things that are in the way of a reset are named.
_NAMED: Final = 10

_WAYS_TO_RESIZE: Final = f"""The ways to go on:
  1. change the cluster in place: with a ClusterCoordinator call resize() or follow(), without one pass
     on_change="update";
  2. end this process and start it again, restoring a checkpoint: the other tasks' servers need no restart;
  3. in a process outside of the ClusterSpec (job_name="chief" where it has no chief, as ParameterServerStrategy wants
     it, else {LOCALHOST!r}): save a checkpoint, drop every tensor, variable, function, strategy and coordinator of the
     old cluster, pass on_change="reset", and build them again;
  4. stay on the old cluster: give everything the snapshot() that this process connected with."""


def permit(target: Target, *, on_change: str) -> None:
    """Let a process connect, if that is sound.

    Args:
        target: what it is to connect to.
        on_change: "refuse", "reset" or "update": what to do where it is connected to another cluster.

    Raises:
        ClusterChangedError: it is connected to another cluster, and is not to be reset or cannot be.
        ConnectedTooLateError: it has variables that its new job's name would break.
        ServeError: it cannot listen on the port of its own task.
        AddressError: the own address is not "host:port".
    """
    connection = tensorflow_api.connected_to(target.spec.jobs)
    if connection is None:
        _permit_first(target)
        return
    same = (connection.spec, connection.job, connection.index) == (target.spec, target.job, target.index)
    first = dict(_first_filters) if _first_filters else _flat(filters_in_message(connection.filters))
    lost = _ignored(first, _flat(target.filters), whole=same and bool(_first_filters), repair=same)
    if lost:
        raise ClusterChangedError(
            f"the device filters of {_listed(lost)} differ from those that this process connected with "
            "(a ParameterServerStrategy that is built first brings its own). TensorFlow keeps the first ones that it "
            f"gets, so the others would not hold.\n{_WAYS_TO_RESIZE.splitlines()[0]}\n"
            "  1. end this process and start it again, restoring a checkpoint; connect before a strategy is built;\n"
            "  2. stay with the old filters: give everything the snapshot() that this process connected with."
        )
    if same:
        return
    changed = (
        f"this process is connected to {connection.spec} as /job:{connection.job}/task:{connection.index}, and is now "
        f"to connect to {target.spec} as /job:{target.job}/task:{target.index}"
    )
    if on_change == "update":
        in_place.permit(target, connection, first, changed)
        return
    if on_change != "reset":
        raise ClusterChangedError(
            f"{changed}. The next use of anything on the old tasks would crash it.\n{_WAYS_TO_RESIZE}"
        )
    _permit_reset(target, connection, changed)


def remember(target: Target) -> None:
    """Note the filters that TensorFlow was given; the first of each task are those that it keeps."""
    _remembered.add(target.name)
    for task, texts in _flat(target.filters).items():
        _first_filters.setdefault(task, texts)


def filtered_tasks(message: Any) -> set[tuple[str, int]]:
    """Tell which tasks have device filters that hold, by job and index, whether they are there yet or not.

    Args:
        message: the filters that TensorFlow was given last, as its protobuf message; a strategy gives some that it does
            not take where this process was connected before.
    """
    return set(_first_filters if _remembered else _flat(filters_in_message(message)))


def _permit_first(target: Target) -> None:
    """Refuse a task whose port is taken, and a new job's name to a process that has variables under the old one.

    TensorFlow loses those variables; and where it cannot open the port, the process can never connect again.
    """
    if target.inside:
        own_port.require_free(target.job, target.index, target.spec.task_address(target.job, target.index))
    early = tensorflow_api.held_elsewhere(target.job, variables_only=True) if tensorflow_api.is_running() else []
    if early:
        raise ConnectedTooLateError(
            f"this process becomes /job:{target.job}/task:{target.index}, and has variables that it could not use any "
            f"more: {_listed(early)}. Connect before the first variable is made"
        )


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


def _permit_reset(target: Target, connection: tensorflow_api.Connection, changed: str) -> None:
    before = f"/job:{connection.job}/task:{connection.index}"
    if connection.job in connection.spec.jobs or target.inside:
        raise ClusterChangedError(
            f"{changed}. It cannot be reset, because it is a task of the ClusterSpec: TensorFlow never closes the "
            f"server that it opened on that task's port, so it cannot open it again.\n{_WAYS_TO_RESIZE}"
        )
    if connection.job != target.job:
        raise ClusterChangedError(
            f"{changed}. It cannot be reset, because its own variables live on {before}, which would be gone.\n"
            f"{_WAYS_TO_RESIZE}"
        )
    held = tensorflow_api.held_elsewhere(target.job)
    if held:
        raise ClusterChangedError(
            f"{changed}. It cannot be reset while it holds what lives on the old tasks, because the next use would "
            f"kill it: {_listed(held)}. Drop them, and every tf.function, strategy and "
            "ClusterCoordinator that has them, and call this again"
        )


def _ignored(
    first: Mapping[tuple[str, int], tuple[str, ...]],
    wanted: Mapping[tuple[str, int], tuple[str, ...]],
    *,
    whole: bool,
    repair: bool,
) -> list[str]:
    """Name the tasks whose wanted filters TensorFlow would not use.

    Args:
        first: what it has.
        wanted: what it is to be given.
        whole: whether a task that has filters and is to have none counts too.
        repair: whether the ClusterSpec is the same; then filters of a task that had none are not used either.
    """
    tasks = {*wanted, *first} if whole else set(wanted)
    differing = [task for task in tasks if first.get(task, ()) != wanted.get(task, ()) and (repair or task in first)]
    return [f"/job:{job}/task:{index}" for job, index in sorted(differing)]


def _flat(filters: _Filters) -> dict[tuple[str, int], tuple[str, ...]]:
    return {(job, index): tuple(texts) for job, tasks in filters.items() for index, texts in tasks.items() if texts}
