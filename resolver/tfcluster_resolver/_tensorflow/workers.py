"""A running ClusterCoordinator taken apart: its workers' threads, and its handling of lost workers.

Its private names are those that :mod:`tfcluster_resolver._tensorflow.private` checked.
"""

# ruff: noqa: SLF001 - TensorFlow's own parts are what it is about

from __future__ import annotations

import contextlib
import copy
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from tfcluster_resolver._tensorflow import per_worker, private
from tfcluster_resolver.errors import RestartNeededError

_tf: Final[Any] = private.coordinator_module

#: The fate of a worker's thread: it continues, begins again with another process, or ends.
GO_ON: Final = "go on"
RECOVER: Final = "recover"
END: Final = "end"

#: Seconds between two attempts to start a worker's thread.
_PAUSE: Final = 0.25


def device_name(index: int) -> str:
    return f"/job:worker/replica:0/task:{index}"


class Hold:
    """Keeps a worker's thread between two closures until its fate is decided."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.left = threading.Event()
        self._decided = threading.Event()
        self._fate = GO_ON
        self._farewell: Callable[[], None] | None = None

    def decide(self, fate: str, farewell: Callable[[], None] | None = None) -> None:
        """Release the thread: GO_ON, RECOVER or END; only the first call counts."""
        if not self._decided.is_set():
            self._fate, self._farewell = fate, farewell
            self._decided.set()

    def wait(self) -> str:
        """Wait, in the worker's thread, and return its fate."""
        self.held.set()
        self._decided.wait()
        if self._farewell is not None:
            with contextlib.suppress(Exception):
                self._farewell()
        self.left.set()
        return self._fate

    def act(self, worker: Any) -> None:
        """Wait in the thread of a running worker, and act on its fate, once."""
        if self.left.is_set():
            return
        fate = self.wait()
        if fate == END:
            worker.stop()
        elif fate == RECOVER:  # its process is a new one: it rebuilds its objects
            worker._on_worker_recovery()


class Engine(Protocol):
    """The handler of lost workers."""

    def lost(self, index: int, values: list[Any], *, incomplete: bool) -> None:
        """Note that a worker failed, and its objects, which are dropped after TensorFlow's cluster has changed."""

    def await_recovery(self, index: int) -> str:
        """Wait, in its thread, until a worker that failed is back, or is to end; returns one of the fates."""


class _Order(_tf.ResourceClosure):  # type: ignore[misc]  # TensorFlow has no types
    def __init__(self, act: Callable[[Any], None]) -> None:
        self._act = act

    def execute_on(self, worker: Any) -> None:
        self._act(worker)

    def maybe_call_with_output_remote_value(self, method: Any) -> None:
        pass


class _Due(threading.Event):
    """Notifies our thread that a worker failed; TensorFlow's own thread sleeps until the coordinator ends."""

    def __init__(self, handler: Any) -> None:
        super().__init__()
        self._theirs = handler._preemption_handler_thread
        self._before = handler._cluster_due_for_update_or_finish

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread() is self._theirs:
            return bool(self._before.wait())
        return super().wait(timeout)

    def end_theirs(self) -> None:
        self._before.set()


class _Handler(_tf.WorkerPreemptionHandler):  # type: ignore[misc]  # TensorFlow has no types
    """TensorFlow's handler of lost workers, with our engine; one of TensorFlow's becomes one while closures run."""

    engine: Engine

    @contextlib.contextmanager
    def wait_on_failure(
        self,
        on_failure_fn: Any = None,
        on_transient_failure_fn: Any = None,
        on_recovery_fn: Any = None,
        worker_device_name: str = "(unknown)",
    ) -> Iterator[None]:
        index = int(worker_device_name.rpartition(":")[2])

        def failed(error: Exception) -> None:
            worker = next((one for one in self._cluster.workers if one.worker_index == index), None)
            refs = worker._resource_remote_value_refs if worker else ()
            # TensorFlow could not send it a function when it connected, and does not try again.
            incomplete = isinstance(error, _tf.errors.NotFoundError)
            self.engine.lost(index, [value._values for ref in list(refs) if (value := ref())], incomplete=incomplete)
            if on_failure_fn:
                on_failure_fn(error)

        def recovered() -> None:  # or another worker is: TensorFlow wakes all
            worker = next(one for one in self._cluster.workers if one.worker_index == index)
            if self.engine.await_recovery(index) == END:
                worker.stop()
            elif on_recovery_fn:
                on_recovery_fn()

        with super().wait_on_failure(failed, on_transient_failure_fn, recovered, worker_device_name):
            yield

    def _validate_preemption_failure(self, error: Exception) -> None:
        """Count as lost, too, a worker that TensorFlow's cluster does not have while it is down."""
        if isinstance(error, _tf.errors.InternalError) and "No worker known as /job:worker" in str(error):
            return
        super()._validate_preemption_failure(error)


class Running:
    """One ClusterCoordinator's cluster, while it runs."""

    def __init__(self, coordinator: Any) -> None:
        # No reference to the coordinator or its strategy: TensorFlow stops the cluster when they go.
        self._strategy = weakref.ref(coordinator.strategy)
        self._cluster = coordinator._cluster
        self._handler = self._cluster.failure_handler
        self._due: _Due

    @staticmethod
    def engine_of(coordinator: Any) -> Any:
        """Return the engine that took a coordinator's cluster over; None if none did."""
        handler = coordinator._cluster.failure_handler
        if type(handler) not in {_Handler, _tf.WorkerPreemptionHandler}:
            raise RestartNeededError(
                f"this coordinator handles lost workers by {type(handler).__name__} (TF_PSS_ENABLE_COORDINATION_SERVICE"
                " is set), which fixes its workers at the start. Nothing was changed. Unset it, or restart the "
                "coordinator to resize"
            )
        return handler.engine if type(handler) is _Handler else None

    def take_over(self, engine: Engine) -> bool:
        """Have an engine handle lost workers; False where TensorFlow waits for some: that cannot be interrupted."""
        handler = self._handler
        if not handler._cluster_update_lock.acquire(timeout=0.1):
            return False
        try:
            if handler._cluster_due_for_update_or_finish.is_set():
                return False
            self._due = _Due(handler)
            handler.engine, handler._cluster_due_for_update_or_finish = engine, self._due
            handler.__class__ = _Handler
        finally:
            handler._cluster_update_lock.release()
        private.cancel_by_thread()
        per_worker.track(self._cluster)
        for worker in self._cluster.workers:
            self.order(worker.worker_index, _wait_for_no_other)
        return True

    @property
    def stopped(self) -> bool:
        """Whether the coordinator has ended."""
        return not self._handler._should_preemption_thread_run

    def close(self) -> None:
        """End TensorFlow's own thread if the coordinator has ended: otherwise it would update the cluster."""
        if self.stopped:
            self._due.end_theirs()

    def wait(self, seconds: float) -> bool:
        """Wait until a worker fails or :meth:`wake` is called; returns whether one of them happened."""
        happened = self._due.wait(seconds)
        if happened and not self.stopped:
            self._due.clear()
        return happened

    def wake(self) -> None:
        self._due.set()

    @property
    def server_def(self) -> Any:
        """A copy of the cluster that TensorFlow has, a ServerDef."""
        return copy.deepcopy(self._handler._server_def)

    def update(self, wanted: Any) -> None:
        private.update(wanted)
        self._handler._server_def = wanted

    def recovered(self, error: Exception | None = None) -> None:
        """Wake the threads of the workers that failed; one of them raises the error, if there is one."""
        with self._handler._cluster_update_lock:
            self._handler._error_from_recovery = error
            self._handler._worker_up_cond.notify_all()

    def can_try_again(self, error: Exception) -> bool:
        """Return whether an update failed because of a worker, or outside of TensorFlow."""
        if not isinstance(error, _tf.errors.OpError):
            return True
        try:
            self._handler._validate_preemption_failure(error)
        except Exception as other:  # noqa: BLE001 - it is the same error, or another
            return other is not error
        return True

    def order(self, index: int, act: Callable[[Any], None]) -> None:
        """Have a worker's own thread do something, before it takes another closure."""
        self._cluster.closure_queue.put(_Order(act), tag=index)

    def start(self, index: int) -> None:
        """Start the thread of a new worker; it builds its per-worker values first."""
        cluster, queue = self._cluster, self._cluster.closure_queue
        with per_worker.changing:
            grown = per_worker.grow(cluster, index)

            def begin(worker: Any) -> None:
                _wait_for_no_other(worker)
                with worker._resource_tracking_lock:
                    worker._resource_remote_value_refs += [weakref.ref(value) for value in grown]
                for value in grown:
                    queue.put(value._closure, tag=index)

            self.order(index, begin)
            while not self.stopped:
                try:
                    cluster.workers.append(_tf.Worker(index, device_name(index), cluster))
                except RuntimeError:  # the process cannot start more threads at the moment
                    time.sleep(_PAUSE)
                else:
                    break

    def drop(self, count: int) -> list[Any]:
        """Forget the workers from an index on, whose threads have ended, and return their objects."""
        # TensorFlow might wait for such a worker when the last reference is dropped.
        cluster, queue = self._cluster, self._cluster.closure_queue
        with per_worker.changing:
            kept: list[Any] = [*cluster.workers[count:], *per_worker.shrink(cluster, count)]
            for worker in cluster.workers[count:]:
                with queue._queue_lock:
                    queue.clear_tag_unlocked(worker.worker_index)
            del cluster.workers[count:]
        return kept

    @property
    def gpus(self) -> int:
        """How many GPUs of each worker the strategy was built for; 0 if it was dropped."""
        strategy = self._strategy()
        return 0 if strategy is None else int(strategy.extended._num_gpus_per_worker)

    def set_sizes(self, workers: int, ps: int) -> None:
        """Set the strategy's sizes; new variables are placed on all ps."""
        strategy = self._strategy()
        for one in (self._cluster, *((strategy, strategy.extended) if strategy is not None else ())):
            one._num_workers, one._num_ps = workers, ps
        with self._cluster._potential_ps_failures_lock:
            counts = self._cluster._potential_ps_failures_count
            counts[:] = [*counts[:ps], *[0] * (ps - len(counts))]


def _wait_for_no_other(worker: Any) -> None:
    """Give a worker's thread its own executor permanently, and make it create constants in this process."""
    # Otherwise the end of each closure waits for the executor that all threads share, where an operation of a lost
    # worker can wait for gRPC: all workers would be blocked.
    private.use_executor(worker.executor)
    private.keep_constants_here()
