"""A running ClusterCoordinator taken apart: its workers' threads, its per-worker values, its handling of lost workers.

It decides nothing: it does to TensorFlow's objects what :mod:`tfcluster_resolver.elastic.engine` decides.  Its private
names are those that :mod:`tfcluster_resolver._tensorflow.private` checked.
"""

# ruff: noqa: SLF001 - TensorFlow's own parts are what it is about

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from tfcluster_resolver._tensorflow import private, values
from tfcluster_resolver.errors import RestartNeededError

_tf: Final[Any] = private.coordinator_module

#: What becomes of a worker's thread: it goes on, begins anew with another process, or ends.
GO_ON: Final = "go on"
RECOVER: Final = "recover"
END: Final = "end"


def device_name(index: int) -> str:
    """Name a worker as TensorFlow's coordinator does."""
    return f"/job:worker/replica:0/task:{index}"


class Engine(Protocol):
    """Who is told of lost workers."""

    def lost(self, index: int, values: list[Any]) -> None:
        """Learn that a worker failed, and what lived there: it is to be dropped after TensorFlow's cluster changed."""

    def await_recovery(self, index: int) -> str:
        """Wait until a worker that failed is back, or shall end; gives one of the fates."""


class _Order(_tf.ResourceClosure):  # type: ignore[misc]  # TensorFlow has no types
    """Something for a worker's own thread to do before it takes another closure."""

    def __init__(self, act: Callable[[Any], None]) -> None:
        self._act = act

    def execute_on(self, worker: Any) -> None:
        self._act(worker)

    def maybe_call_with_output_remote_value(self, method: Any) -> None:
        """There is no output."""


class _Due(threading.Event):
    """Tells our thread that a worker failed; TensorFlow's own thread sleeps on until the coordinator ends."""

    def __init__(self, handler: Any) -> None:
        super().__init__()
        self._theirs = handler._preemption_handler_thread
        self._before = handler._cluster_due_for_update_or_finish

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread() is self._theirs:
            return bool(self._before.wait())
        return super().wait(timeout)

    def end(self) -> None:
        """Let TensorFlow's own thread end."""
        self._before.set()


class _Handler(_tf.WorkerPreemptionHandler):  # type: ignore[misc]  # TensorFlow has no types
    """TensorFlow's handler of lost workers, whose cluster is updated by an engine of ours.

    An instance of TensorFlow's becomes one while closures run: whoever is in its methods finds what it has.
    """

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
            self.engine.lost(index, [value._values for ref in list(refs) if (value := ref())])
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
        # NB: no reference to the coordinator or its strategy: TensorFlow stops the cluster when they go.
        self._strategy = weakref.ref(coordinator.strategy)
        self._cluster = coordinator._cluster
        self._handler = self._cluster.failure_handler
        self._due: _Due | None = None

    @staticmethod
    def engine_of(coordinator: Any) -> Any:
        """Give the engine that took a coordinator's cluster over; None if none did."""
        handler = coordinator._cluster.failure_handler
        if type(handler) not in {_Handler, _tf.WorkerPreemptionHandler}:
            raise RestartNeededError(
                f"this coordinator handles lost workers by {type(handler).__name__} (TF_PSS_ENABLE_COORDINATION_SERVICE"
                " is set), which fixes its workers at the start. Nothing was changed. Unset it, or restart the "
                "coordinator to resize"
            )
        return handler.engine if type(handler) is _Handler else None

    def take_over(self, engine: Engine) -> bool:
        """Have an engine handle lost workers; closures go on meanwhile.

        Returns:
            Whether it is done: TensorFlow cannot be interrupted while it waits for lost workers itself.
        """
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
        values.track(self._cluster)
        for worker in self._cluster.workers:
            self.order(worker.worker_index, _wait_for_no_other)
        return True

    @property
    def stopped(self) -> bool:
        """Whether the coordinator is gone."""
        return not self._handler._should_preemption_thread_run

    def close(self) -> None:
        """Let TensorFlow's own thread end, if the coordinator is gone: else it would update the cluster."""
        if self._due is not None and self.stopped:
            self._due.end()

    def wait(self, seconds: float) -> bool:
        """Wait until a worker fails, or somebody calls :meth:`wake`; tells whether one of them happened."""
        happened = self._due is not None and self._due.wait(seconds)
        if happened and not self.stopped:
            self._due.clear()  # type: ignore[union-attr]  # see the line above
        return happened

    def wake(self) -> None:
        """End the wait."""
        if self._due is not None:
            self._due.set()

    @property
    def server_def(self) -> Any:
        """The cluster that TensorFlow has, as a ServerDef message of one's own."""
        return copy.deepcopy(self._handler._server_def)

    def update(self, wanted: Any) -> None:
        """Change TensorFlow's cluster; it blocks as long as a task of it does not answer."""
        private.update(wanted)
        self._handler._server_def = wanted

    def recovered(self, error: Exception | None = None) -> None:
        """Wake the threads of the workers that failed; one of them raises the error, if there is one."""
        with self._handler._cluster_update_lock:
            self._handler._error_from_recovery = error
            self._handler._worker_up_cond.notify_all()

    def is_worker_failure(self, error: Exception) -> bool:
        """Tell whether an update failed because of a worker: it can be tried again."""
        try:
            self._handler._validate_preemption_failure(error)
        except Exception as other:  # noqa: BLE001 - it is the same error, or another
            return other is not error
        return True

    @property
    def workers(self) -> list[int]:
        """The indices of the workers that have a thread."""
        return [worker.worker_index for worker in self._cluster.workers]

    def order(self, index: int, act: Callable[[Any], None]) -> None:
        """Have a worker's own thread do something, before it takes another closure."""
        self._cluster.closure_queue.put(_Order(act), tag=index)

    def start(self, index: int) -> None:
        """Start the thread of a worker that is new; it builds what it holds of per-worker values first."""
        cluster, queue = self._cluster, self._cluster.closure_queue
        with values.changing:
            grown = values.grow(cluster, index)

            def begin(worker: Any) -> None:
                _wait_for_no_other(worker)
                with worker._resource_tracking_lock:
                    worker._resource_remote_value_refs += [weakref.ref(value) for value in grown]
                for value in grown:
                    queue.put(value._closure, tag=index)

            self.order(index, begin)
            cluster.workers.append(_tf.Worker(index, device_name(index), cluster))

    def drop(self, count: int) -> list[Any]:
        """Forget the workers from an index on, whose threads have ended.

        Returns:
            What lived on them: TensorFlow may wait for the worker of it where the last reference goes.
        """
        cluster, queue = self._cluster, self._cluster.closure_queue
        with values.changing:
            kept: list[Any] = [*cluster.workers[count:], *values.shrink(cluster, count)]
            for worker in cluster.workers[count:]:
                with queue._queue_lock:
                    queue.clear_tag_unlocked(worker.worker_index)
            del cluster.workers[count:]
        return kept

    @property
    def gpus(self) -> int:
        """How many GPUs of each worker the strategy was built for; 0 where it is gone."""
        strategy = self._strategy()
        return 0 if strategy is None else int(strategy.extended._num_gpus_per_worker)

    def set_sizes(self, workers: int, ps: int) -> None:
        """Tell the strategy how many there are; new variables go to all ps."""
        strategy = self._strategy()
        for one in (self._cluster, *((strategy, strategy.extended) if strategy is not None else ())):
            one._num_workers, one._num_ps = workers, ps
        with self._cluster._potential_ps_failures_lock:
            counts = self._cluster._potential_ps_failures_count
            counts[:] = [*counts[:ps], *[0] * (ps - len(counts))]


def leave(worker: Any) -> None:
    """End a worker's thread, from within."""
    worker.stop()


def recover(worker: Any) -> None:
    """Have a worker's thread build again what it holds, from within: its process is another one."""
    worker._on_worker_recovery()


def _wait_for_no_other(worker: Any) -> None:
    """Give a worker's thread its own executor for good, and have it make constants in this process.

    Else the end of each closure waits for the executor that all threads share, and there something of a lost worker may
    wait for gRPC: all workers would stand still.
    """
    private.use_executor(worker.executor)
    private.keep_constants_here()
