"""Connecting a process that is connected already: whether a repair, an update or a reset is sound.

TensorFlow repairs the connection to an unchanged cluster and keeps everything.  To a changed one it makes a new
connection, and then any use of what lives on an old task kills the process; and it never closes the server that a
process opened on its own port, so a task of the ClusterSpec cannot open it a second time.  An update keeps the
connection, and everything that lives on the tasks that stay.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any, Final

from tfcluster_resolver import errors
from tfcluster_resolver._arguments import first_of
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.connect.target import LOCALHOST, Target, tasks_in
from tfcluster_resolver.device_filters import filters_in_message
from tfcluster_resolver.waiting import port_state, speaks_grpc
from tfcluster_resolver.waiting.addresses import host_and_port

#: The first filters of this process's TensorFlow, by job and index: it keeps them until the process ends.
_first_filters: Final[dict[tuple[str, int], tuple[str, ...]]] = {}

#: The clusters that this process was connected to here.
_remembered: Final[set[str]] = set()

_WAYS_TO_RESIZE: Final = f"""The options:
  1. change the cluster in place: with a ClusterCoordinator call resize() or follow(), without one pass
     on_change="update";
  2. end this process and start it again, restoring a checkpoint: the other tasks' servers keep running;
  3. in a process outside of the ClusterSpec (job_name="chief" where it has no chief, as ParameterServerStrategy wants
     it, else {LOCALHOST!r}): save a checkpoint, drop every tensor, variable, function, strategy and coordinator of the
     old cluster, pass on_change="reset", and build them again;
  4. stay on the old cluster: give everything the snapshot() that this process connected with."""


def permit(target: Target, *, on_change: str) -> None:
    """Connect a process if that is safe; ``on_change`` is what to do if it is connected to another cluster."""
    connection = tensorflow_api.connected_to(target.spec.jobs)
    if connection is None:
        _permit_first(target)
        return
    same = (connection.spec, connection.job, connection.index) == (target.spec, target.job, target.index)
    first = dict(_first_filters) if _first_filters else _flat(filters_in_message(connection.filters))
    lost = _ignored(first, _flat(target.filters), whole=same and bool(_first_filters), repair=same)
    if lost:
        raise errors.ClusterChangedError(
            f"the device filters of {first_of(lost)} differ from those that this process connected with "
            "(a ParameterServerStrategy that is built first brings its own). TensorFlow keeps the first ones that it "
            f"gets, so the others would not hold.\n{_WAYS_TO_RESIZE.splitlines()[0]}\n"
            "  1. end this process and start it again, restoring a checkpoint; connect before a strategy is built;\n"
            "  2. stay with the old filters: give everything the snapshot() that this process connected with."
        )
    if same:
        return
    changed = f"this process is connected to another cluster than {target.name} ({_difference(connection, target)})"
    if on_change == "update":
        _permit_update(target, connection, first, changed)
    elif on_change == "reset":
        _permit_reset(target, connection, changed)
    else:
        raise errors.ClusterChangedError(
            f"{changed}. The next use of anything on the old tasks would crash it.\n{_WAYS_TO_RESIZE}"
        )


def _difference(connection: tensorflow_api.Connection, target: Target) -> str:
    before, after = ({task[:2]: task for task in tasks_in(spec)} for spec in (connection.spec, target.spec))
    tasks = {
        "added": [after[key] for key in after.keys() - before.keys()],
        "removed": [before[key] for key in before.keys() - after.keys()],
        "at another address": [after[key] for key in after.keys() & before.keys() if after[key] != before[key]],
    }
    parts = [f"{word}: {first_of([str(one) for one in sorted(found)])}" for word, found in tasks.items() if found]
    own = f"/job:{connection.job}/task:{connection.index}"
    return "; ".join([*parts, *([f"as {own} in place of {target}"] if own != str(target) else [])])


def update(target: Target, timeout: float) -> bool:
    """Change the cluster of this process, whose tasks have just answered; return whether anything changed."""
    connection = tensorflow_api.connected_to(target.spec.jobs)
    if connection is None or connection.spec == target.spec:
        return False
    from tfcluster_resolver._tensorflow import private  # noqa: PLC0415 - loading it checks TensorFlow

    wanted = private.server_def()
    own = [job for job in wanted.cluster.job if job.name not in target.spec.jobs and job.name == wanted.job_name]
    wanted.cluster.CopyFrom(target.spec.as_cluster_def())
    wanted.cluster.job.extend(own)
    raised: list[Exception] = []

    def change() -> None:
        try:
            private.update(wanted)
        except Exception as error:  # noqa: BLE001 - raised below
            raised.append(error)

    changing = threading.Thread(target=change, name="tfcluster-update", daemon=True)
    changing.start()
    changing.join(min(timeout, threading.TIMEOUT_MAX))
    if changing.is_alive():
        raise errors.TasksUnreachableError(
            f"TensorFlow did not change the cluster of this process within {timeout:g} s: it waits for a task that "
            "no longer answers, and continues when that is back. Until then, use nothing on the new tasks"
        )
    if raised:
        raise raised[0]
    return True


def remember(target: Target) -> None:
    """Note the filters that TensorFlow received; it keeps the first ones of each task."""
    _remembered.add(target.name)
    for task, texts in _flat(target.filters).items():
        _first_filters.setdefault(task, texts)


def filtered_tasks(message: Any) -> set[tuple[str, int]]:
    """Return the tasks whose device filters are in effect, by the last filters that TensorFlow received."""
    # A strategy passes some that TensorFlow ignores if this process was connected before.
    return set(_first_filters if _remembered else _flat(filters_in_message(message)))


def _permit_first(target: Target) -> None:
    """Reject a task whose port is taken, and a new job's name for a process that has variables under the old one."""
    # TensorFlow loses those variables; and if it cannot open the port, the process can never connect again.
    if target.inside:
        _, port = host_and_port(target.spec.task_address(target.job, target.index))
        state = port_state(port)
        listens = f"to connect as {target}, this process must listen on port {port}"
        if state == "forbidden":
            raise errors.ServeError(f"{listens}, which this user cannot: choose a port above 1023 in the TFCluster")
        if state == "taken":
            server = speaks_grpc(port)
            raise errors.PortTakenError(
                f"{listens}, where {'a task server' if server else 'another program'} listens already. A task either "
                f"serves or connects: let the command of this pod be your program"
                f"{' and not `python -m tfcluster_resolver serve`' if server else ''}; or connect from another process "
                'with job_name="localhost", if no task has to reach it'
            )
    early = tensorflow_api.held_elsewhere(target.job, variables_only=True) if tensorflow_api.is_running() else []
    if early:
        raise errors.ConnectedTooLateError(
            f"this process becomes {target}, and has variables that it could no longer use: {first_of(early)}. Connect "
            "before the first variable is created"
        )


def _permit_update(
    target: Target, connection: tensorflow_api.Connection, first: Collection[tuple[str, int]], changed: str
) -> None:
    """Allow new tasks, and removed or moved ones that hold no object of this process; ``first`` have filters."""
    from tfcluster_resolver._tensorflow import private  # noqa: PLC0415 - loading it checks TensorFlow

    before, after = ({task[:2]: task.address for task in tasks_in(spec)} for spec in (connection.spec, target.spec))
    own = (target.job, target.index)
    if (connection.job, connection.index) != own or before.get(own) != after.get(own):
        raise errors.ClusterChangedError(f"{changed}. A process cannot become another task: start it again")
    if private.has_coordinator():
        raise errors.ClusterChangedError(
            f"{changed}. It has a ClusterCoordinator: call resize() or follow() with it instead"
        )
    late = after.keys() - before.keys() - set(first)
    bare = [f"/job:{job}/task:{index}" for job, index in sorted(late) if target.filters.get(job, {}).get(index)]
    if bare:
        raise errors.ClusterChangedError(
            f"{changed}. The device filters of {first_of(bare)} would not hold: TensorFlow keeps those that it got "
            "when this process connected. Connect with a view that declares maxReplicas"
        )
    gone = [f" on /job:{task[0]}/replica:0/task:{task[1]}/" for task, at in before.items() if after.get(task) != at]
    held = [text for text in tensorflow_api.held_elsewhere(target.job) if any(task in text for task in gone)]
    if held:
        raise errors.ClusterChangedError(
            f"{changed}. Everything on the tasks that leave would be lost: {first_of(held)}. Drop it, or save it in a "
            "checkpoint and start this process again"
        )


def _permit_reset(target: Target, connection: tensorflow_api.Connection, changed: str) -> None:
    before = f"/job:{connection.job}/task:{connection.index}"
    if connection.job in connection.spec.jobs or target.inside:
        raise errors.ClusterChangedError(
            f"{changed}. It cannot be reset, because it is a task of the ClusterSpec: TensorFlow never closes the "
            f"server that it opened on that task's port, so it cannot open it again.\n{_WAYS_TO_RESIZE}"
        )
    if connection.job != target.job:
        raise errors.ClusterChangedError(
            f"{changed}. It cannot be reset, because its own variables live on {before}, which would disappear.\n"
            f"{_WAYS_TO_RESIZE}"
        )
    held = tensorflow_api.held_elsewhere(target.job)
    if held:
        raise errors.ClusterChangedError(
            f"{changed}. It cannot be reset while it holds what lives on the old tasks, because the next use would "
            f"kill it: {first_of(held)}. Drop them, and every tf.function, strategy and "
            "ClusterCoordinator that has them, and call this again"
        )


def _ignored(
    first: Mapping[tuple[str, int], tuple[str, ...]],
    wanted: Mapping[tuple[str, int], tuple[str, ...]],
    *,
    whole: bool,
    repair: bool,
) -> list[str]:
    """Return the tasks whose wanted filters TensorFlow would not use, because it keeps the first ones."""
    # With ``whole`` a task that is to lose its filters counts too.  In a repair, of the same ClusterSpec, filters of a
    # task without filters are not used either.
    tasks = {*wanted, *first} if whole else set(wanted)
    differing = [task for task in tasks if first.get(task, ()) != wanted.get(task, ()) and (repair or task in first)]
    return [f"/job:{job}/task:{index}" for job, index in sorted(differing)]


def _flat(filters: Mapping[str, Mapping[int, tuple[str, ...]]]) -> dict[tuple[str, int], tuple[str, ...]]:
    return {(job, index): tuple(texts) for job, tasks in filters.items() for index, texts in tasks.items() if texts}
