"""Every private name of TensorFlow that a resize in place needs, and TensorFlow's own update of its cluster.

A TensorFlow that our tests do not run, or whose private parts are others, is rejected when this module is loaded,
before anything is changed.  Loading it imports TensorFlow, so only what resizes loads it.  The names are used here and
in :mod:`tfcluster_resolver._tensorflow.workers`, and nowhere else.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import importlib
import inspect
import threading
from collections import deque
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

from tfcluster_resolver.errors import RestartNeededError

#: The versions that the tests run, by their first two numbers.
_VERSIONS: Final = ("2.19", "2.20", "2.21")

_COORDINATOR: Final = "tensorflow.python.distribute.coordinator.cluster_coordinator"
_STRATEGY: Final = "tensorflow.python.distribute.parameter_server_strategy_v2"
_CONTEXT: Final = "tensorflow.python.eager.context"
_CANCELLATION: Final = "tensorflow.python.eager.cancellation"
_CONSTANTS: Final = "tensorflow.python.framework.constant_op"

#: The private API used here: a function of TensorFlow, and an attribute or argument that it must have.
_USED: Final = {
    f"{_CONTEXT}:Context.update_server_def": "server_def TFE_ContextUpdateServerDef _initialize_logical_devices",
    f"{_CONTEXT}:Context.executor.fset": "TFE_ContextSetExecutorForThread",
    f"{_CONTEXT}:Context.add_c_function": "c_func TFE_ContextAddFunction",
    f"{_CONTEXT}:Context.add_function_def": "fdef TFE_ContextAddFunctionDef",
    f"{_CONTEXT}:Context.remove_function": "name TFE_ContextRemoveFunction",
    f"{_CONTEXT}:get_server_def": "get_server_def",
    f"{_CONTEXT}:Context.call_function": "cancellation context",
    f"{_CANCELLATION}:context": "_active_context",
    f"{_CANCELLATION}:CancellationManagerContext.__enter__": "_cancellation_manager _active_context",
    f"{_CANCELLATION}:CancellationManagerContext.__exit__": "_active_context",
    f"{_CONSTANTS}:convert_to_eager_tensor": "value ctx dtype EagerTensor device_name",
    f"{_CONSTANTS}:_constant_eager_impl": "convert_to_eager_tensor",
    f"{_COORDINATOR}:Cluster.__init__": "_num_workers _num_ps _potential_ps_failures_lock _potential_ps_failures_count "
    "closure_queue failure_handler workers WorkerPreemptionHandler get_server_def",
    f"{_STRATEGY}:ParameterServerStrategyV2Extended._set_num_gpus": "_num_gpus_per_worker",
    f"{_COORDINATOR}:ClusterCoordinator.__init__": "_cluster _strategy",
    f"{_COORDINATOR}:Worker.__init__": "worker_index device_name cluster executor failure_handler "
    "_resource_tracking_lock _resource_remote_value_refs _should_worker_thread_run _process_queue Thread start",
    f"{_COORDINATOR}:Worker.stop": "_should_worker_thread_run",
    f"{_COORDINATOR}:Worker._process_queue": "_should_worker_thread_run get tag ResourceClosure "
    "_process_resource_closure",
    f"{_COORDINATOR}:Worker._process_closure": "failure_handler wait_on_failure on_failure_fn on_recovery_fn "
    "worker_device_name put_back mark_finished",
    f"{_COORDINATOR}:Worker._process_resource_closure": "tag worker_index wait_on_failure execute_on "
    "maybe_call_with_output_remote_value",
    f"{_COORDINATOR}:Worker._on_worker_recovery": "_resource_remote_value_refs _closure _schedule_resource",
    f"{_COORDINATOR}:Worker._register_and_schedule_resource_closure": "build_output_remote_value _register_resource "
    "_schedule_resource",
    f"{_COORDINATOR}:_CoordinatedClosureQueue.__init__": "_queue_lock _tagged_queue",
    f"{_COORDINATOR}:_CoordinatedClosureQueue.put": "tag _tagged_queue notify_all",
    f"{_COORDINATOR}:_CoordinatedClosureQueue.get": "tag _tagged_queue _queue inflight_closure_count",
    f"{_COORDINATOR}:_CoordinatedClosureQueue.clear_tag_unlocked": "tag _tagged_queue Queue",
    f"{_COORDINATOR}:WorkerPreemptionHandler.__init__": "_server_def _cluster _cluster_update_lock "
    "_cluster_due_for_update_or_finish _worker_up_cond _error_from_recovery _should_preemption_thread_run "
    "_preemption_handler_thread",
    f"{_COORDINATOR}:WorkerPreemptionHandler.stop": "_should_preemption_thread_run _cluster_due_for_update_or_finish",
    f"{_COORDINATOR}:WorkerPreemptionHandler._preemption_handler": "_cluster_due_for_update_or_finish wait "
    "_should_preemption_thread_run _cluster_update_lock update_server_def clear",
    f"{_COORDINATOR}:WorkerPreemptionHandler.wait_on_failure": "on_failure_fn on_transient_failure_fn on_recovery_fn "
    "worker_device_name _cluster_update_lock _cluster_due_for_update_or_finish _worker_up_cond _error_from_recovery "
    "_validate_preemption_failure",
    f"{_COORDINATOR}:WorkerPreemptionHandler._validate_preemption_failure": "_is_worker_failure",
    f"{_COORDINATOR}:Closure.__init__": "_output_remote_value_ref",
    f"{_COORDINATOR}:ResourceClosure.build_output_remote_value": "_output_remote_value_ref _init_remote_value",
    f"{_COORDINATOR}:RemoteValueImpl.__init__": "_closure _type_spec _values",
    f"{_COORDINATOR}:PerWorkerValues.__init__": "values _values",
    f"{_COORDINATOR}:_select_worker_slice": "worker_id _values PerWorkerValues",
}


def _spoken_of(function: Any) -> set[str]:
    """Collect the names in a function's code, with those of the functions inside of it."""
    codes: list[CodeType] = [inspect.unwrap(function).__code__]
    found: set[str] = set()
    while codes:
        code = codes.pop()
        found |= {code.co_name, *code.co_names, *code.co_varnames, *code.co_freevars}
        for constant in code.co_consts:
            if inspect.iscode(constant):
                codes.append(constant)
            elif isinstance(constant, tuple):  # the names of a call's arguments
                found |= {text for text in constant if isinstance(text, str)}
    return found


def _missing(place: str, words: str) -> str:
    """Return the missing parts of a place, or ""."""
    module, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
        lost = set(words.split()) - _spoken_of(found)
    except (ImportError, AttributeError) as error:
        return f"{path}: {error}"
    return f"{path} knows no {', '.join(sorted(lost))}" if lost else ""


def _check() -> None:
    version = importlib.import_module("tensorflow").__version__
    known = ".".join(version.split(".")[:2]) in _VERSIONS
    missing = [text for place, words in _USED.items() if (text := _missing(place, words))]
    if known and not missing:
        return
    why = "; ".join(missing) or f"our tests run {', '.join(_VERSIONS)} alone"
    raise RestartNeededError(
        f"TensorFlow {version} cannot be resized in place ({why}). Nothing was changed. Save a checkpoint, end this "
        "process and start it again: the servers of the other tasks keep running"
    )


_check()
#: TensorFlow's module of the ClusterCoordinator.
coordinator_module: Any = importlib.import_module(_COORDINATOR)
_context: Any = importlib.import_module(_CONTEXT)
_cancellation: Any = importlib.import_module(_CANCELLATION)
_constants: Any = importlib.import_module(_CONSTANTS)
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
