"""A program of equal workers starts again, in its pod, when the cluster has another size.

MultiWorkerMirroredStrategy fixes its workers in its constructor.  So the program starts again, and this module makes
that short: the workers leave together, at a call of :meth:`RestartOnResize.check` that they agree on by an all-reduce;
and each process becomes a new one of the same program, so that no pod is replaced.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from tfcluster_resolver import _arguments
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.contract import EVALUATOR
from tfcluster_resolver.elastic.meeting import declared, meet, own_in
from tfcluster_resolver.errors import ArgumentTypeError, CoordinatorNotInClusterError, ViewError
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.waiting import wait_for_tasks


class RestartOnResize:
    """Restarts a MultiWorkerMirroredStrategy program in place when its cluster was resized.

    ::

        restart = RestartOnResize()
        strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=restart.meet())
        ...                                   # restore the newest checkpoint
        for step in range(steps):
            train()
            if step % 100 == 0:
                restart.check(strategy, save)

    Make it before the program changes its working folder: it starts again in this one.

    Args:
        resolver: whose cluster and task, the pod's by default; that of a snapshot is followed from now on, too.

    Raises:
        CoordinatorNotInClusterError: the resolver speaks for no task, or for an evaluator, which trains alone.
        ArgumentTypeError: ``resolver`` is not a TFClusterResolver.
        ViewError: the view cannot be used.
    """

    def __init__(self, resolver: TFClusterResolver | None = None) -> None:
        if not isinstance(resolver, TFClusterResolver | None):
            raise ArgumentTypeError(f"RestartOnResize takes a TFClusterResolver, not {type(resolver).__name__}")
        self._resolver = TFClusterResolver() if resolver is None else resolver._live_again()  # noqa: SLF001 - of this package
        if self._resolver.task_type in (None, EVALUATOR) or self._resolver.task_id is None:
            raise CoordinatorNotInClusterError(
                "only a task of the ClusterSpec can restart with the others, and this resolver speaks for "
                f"{self._resolver.task_type or 'none'}"
            )
        self._folder = os.getcwd()  # noqa: PTH109 - as it is, links and all
        self._cluster = self._resolver.snapshot()
        self._sum: Any = None

    def meet(self, timeout: float = 300.0) -> TFClusterResolver:
        """Wait until all tasks of the cluster are here and see the same epoch; call it before making the strategy.

        A task that came with the resize waits here until the others have come back.  A task that is scaled away ends
        the process with 0.

        Args:
            timeout: how long to wait, in seconds.

        Returns:
            A snapshot, for the strategy.

        Raises:
            TasksUnreachableError: some tasks did not come in time.
            PortTakenError: something else listens on the task's own port.
            AddressError: an address is not "host:port".
            ArgumentError: the time-out is below 0 or not a number.
            ViewError: the view cannot be used.
        """
        self._cluster = meet(self._resolver, timeout=_arguments.seconds(timeout, "timeout"))
        if own_in(declared(self._cluster), self._resolver) is None:
            _end()
        return self._cluster

    def check(self, strategy: Any, save: Callable[[], object] | None = None) -> None:
        """Restart if any worker sees a new epoch; all workers call this at the same point between two steps.

        It costs an all-reduce of one number, so call it every 100 steps, say, and more often than :meth:`meet` waits.
        When a task is no longer declared, or all that came have called :meth:`meet`, it saves, waits until all have
        saved, and does not return: the program begins again, without ``finally`` blocks and atexit handlers, and
        :meth:`meet` brings the workers together.  While a new worker's pod waits for a node or its image, training
        continues as it was.  A worker that is scaled away ends with 0.

        Args:
            strategy: the ``tf.distribute.MultiWorkerMirroredStrategy`` that was built with :meth:`meet`'s resolver.
            save: saves what the next start restores; all workers call it, as saving distributed variables needs it.

        Raises:
            TensorFlowNotFoundError: TensorFlow is not installed.
            ArgumentTypeError: the strategy is not one of TensorFlow's.
        """
        if not self._any(strategy, yes=self._is_changed()):
            return
        if save is not None:
            save()
        # A worker must not end while another one still writes.  The first one that has the sum of all ends, and others
        # that still receive the sum from it fail.
        with contextlib.suppress(tensorflow_api.load("RestartOnResize.check()").errors.OpError):
            self._any(strategy, yes=False)
        with contextlib.suppress(ViewError):  # if it is unreadable for a moment, the next start checks again
            if own_in(declared(self._resolver.snapshot()), self._resolver) is None:
                _end()
        _flush()
        os.chdir(self._folder)
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the program itself, by the words that it was started with

    def _is_changed(self) -> bool:
        then = declared(self._cluster)
        try:
            now = declared(self._resolver.snapshot())
        except ViewError:
            return False  # training does not end for a view that is unreadable for a moment
        if not set(then) <= set(now):
            return True
        came = [task for task in now if task not in then]
        # One task checks for all: with a pod that is not scheduled yet, each check of each worker would wait.
        leads = then[:1] == [own_in(then, self._resolver)]
        return bool(came) and leads and not wait_for_tasks(came, timeout=0)

    def _any(self, strategy: Any, *, yes: bool) -> bool:
        """Return in every worker whether any of them has ``yes``; all wait here for each other."""
        tensorflow = tensorflow_api.load("RestartOnResize.check()")
        if not isinstance(strategy, tensorflow.distribute.Strategy):
            raise ArgumentTypeError(f"check() takes the strategy first, not {type(strategy).__name__}")
        if self._sum is None:

            def of_replica(number: Any) -> Any:
                # Identity, because a function's argument does not have a device, and an all-reduce requires one.
                return tensorflow.distribute.get_replica_context().all_reduce("SUM", tensorflow.identity(number))

            self._sum = tensorflow.function(lambda number: strategy.run(of_replica, args=(number,)))
        summed = strategy.experimental_local_results(self._sum(tensorflow.constant(float(yes))))
        return float(summed[0]) > 0


def _end() -> NoReturn:
    """End the process: TensorFlow's own end would wait for workers that have ended."""
    _flush()
    os._exit(0)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
