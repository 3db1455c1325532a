"""The private parts of TensorFlow that a resize in place needs, and TensorFlow's own update of its cluster.

A TensorFlow that our tests do not run is rejected when this module is loaded, before anything is changed: its private
parts can be others.  Loading it imports TensorFlow, so only what resizes loads it.  Private names are used here and in
:mod:`tfcluster_resolver._tensorflow.workers`, and nowhere else.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import importlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tfcluster_resolver.errors import RestartNeededError

#: The versions that the tests run, by their first two numbers.
_VERSIONS: Final = ("2.19", "2.20", "2.21")


def _check() -> None:
    version = importlib.import_module("tensorflow").__version__
    if ".".join(version.split(".")[:2]) not in _VERSIONS:
        raise RestartNeededError(
            f"TensorFlow {version} cannot be resized in place: only {', '.join(_VERSIONS)} are tested. Nothing was "
            "changed. Save a checkpoint, end this process and start it again: the other tasks' servers keep running"
        )


_check()
#: TensorFlow's module of the ClusterCoordinator.
coordinator_module: Any = importlib.import_module("tensorflow.python.distribute.coordinator.cluster_coordinator")
_context: Any = importlib.import_module("tensorflow.python.eager.context")
_cancellation: Any = importlib.import_module("tensorflow.python.eager.cancellation")
_constants: Any = importlib.import_module("tensorflow.python.framework.constant_op")
_convert: Final[Any] = _constants.convert_to_eager_tensor

#: TensorFlow crashes if two threads update its cluster at the same time.
_updating: Final = threading.RLock()
#: How TensorFlow forgets each function that the program has dropped.
_dropped: Final[deque[Callable[[], object]]] = deque()
#: The manager that cancels the functions of a thread.
_cancelling: Final = threading.local()
#: The own task, in the threads that create their constants there.
_own: Final = threading.local()


def server_def() -> Any:
    """Return a copy of the last cluster of this process's TensorFlow; None without one."""
    return copy.deepcopy(_context.get_server_def())


def update(wanted: Any) -> None:
    """Change TensorFlow's cluster and keep all objects on the remaining tasks; blocks while a task does not answer."""
    with _updating:
        _context.context().update_server_def(wanted)
        _forget_dropped()


def _adding(add: Any) -> Any:
    @functools.wraps(add)
    def wait_and_add(context: Any, function: Any) -> None:
        with _updating:
            _forget_dropped()  # one of them can have the same name
            add(context, function)

    return wait_and_add


def _removing(remove: Any) -> Any:
    @functools.wraps(remove)
    def remove_later(context: Any, name: Any) -> None:
        # The garbage collector calls it in any thread, whatever locks that holds: it must not wait.
        _dropped.append(functools.partial(remove, context, name))
        if _updating.acquire(blocking=False):
            try:
                _forget_dropped()
            finally:
                _updating.release()

    return remove_later


def _forget_dropped() -> None:
    while _dropped:
        with contextlib.suppress(Exception):  # a worker is lost, and its functions with it
            _dropped.popleft()()


# TensorFlow sends each function to every task, and guards that against no change of the cluster: a function that is
# called for the first time while a worker leaves would fail in the program.
for _name in ("add_c_function", "add_function_def"):
    setattr(_context.Context, _name, _adding(getattr(_context.Context, _name)))
_context.Context.remove_function = _removing(_context.Context.remove_function)


def has_coordinator() -> bool:
    return any(issubclass(type(one), coordinator_module.Cluster) for one in gc.get_objects())


def use_executor(executor: Any) -> None:
    """Set the executor of the current thread, permanently."""
    _context.context().executor = executor


def cancel_by_thread() -> None:
    """Restrict a cancellation of one thread's functions to that thread."""
    # TensorFlow keeps it in a global variable: a failing closure cancels the others, and could also cancel the dataset
    # that another thread builds for a new worker, which could then never use it.
    entered = _cancellation.CancellationManagerContext
    entered.__enter__ = lambda self: setattr(_cancelling, "manager", self._cancellation_manager)
    entered.__exit__ = lambda *_: setattr(_cancelling, "manager", None)
    _cancellation.context = lambda: getattr(_cancelling, "manager", None)


def keep_constants_here() -> None:
    """Keep the constants that this thread makes for another task in this process until they are used."""
    # TensorFlow would send them together and wait with Python's lock: one hanging worker would block all threads.
    here = server_def()
    _own.task = f"/job:{here.job_name}/replica:0/task:{here.task_index}/"
    _constants.convert_to_eager_tensor = _convert_here


def _convert_here(value: Any, ctx: Any, dtype: Any = None) -> Any:
    own = getattr(_own, "task", None)
    if own is None or not ctx.device_name or ctx.device_name.startswith(own):
        return _convert(value, ctx, dtype)
    with ctx.device(f"{own}device:CPU:0"):
        return _convert(value, ctx, dtype)


def gpus(job: str, index: int) -> int:
    task = f"/job:{job}/replica:0/task:{index}/"
    return sum(
        device.device_type == "GPU" and device.name.startswith(task)
        for device in _context.context().list_logical_devices()
    )
