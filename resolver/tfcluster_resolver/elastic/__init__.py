"""Changing the size of a cluster under a running program: once, or at each new epoch, in the background.

Which changes can be followed is decided in :mod:`tfcluster_resolver.elastic.plan`, and the order of its steps in
:mod:`tfcluster_resolver.elastic.change`, which imports TensorFlow and checks it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tfcluster_resolver import contract
from tfcluster_resolver._arguments import seconds, seconds_or_none
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.elastic.plan import Change, Refusal
from tfcluster_resolver.errors import ArgumentTypeError, RestartNeededError, TasksBusyError, ViewError
from tfcluster_resolver.resolver import TFClusterResolver

if TYPE_CHECKING:
    from typing import Self  # not in Python 3.10

    from tfcluster_resolver.elastic.engine import ElasticEngine

__all__ = ["Change", "Following", "Refusal", "follow", "resize"]

_log: Final = logging.getLogger(__name__)

#: Seconds between two checks of a coordinator whose view never changes, and of tasks that do not listen yet.
_LOOK: Final = 1.0
_LOOK_AT_LATE: Final = 0.25
#: The longest time (seconds) of one change before the next one is processed; it is tried again.  If there is a newer
#: view, the time is shorter at first and doubles after each failed change, so that frequent changes cannot block all.
_TRY: Final = 30.0
_FIRST_TRY: Final = 1.0
#: Seconds that the end of following waits for a change that is being made.
_END: Final = 5.0
#: Seconds that Python can wait for at most, and some to spare.
_LONGEST: Final = threading.TIMEOUT_MAX / 2


def resize(coordinator: Any, resolver: TFClusterResolver, *, timeout: float = 300.0) -> Change:
    """Make a running ClusterCoordinator use the tasks that its cluster has now.

    Variables, traced functions, queued closures and the iterators of the workers that stay are kept.  New workers take
    closures as soon as they listen; per-worker datasets, tables and variables are created on them too.  A worker that
    leaves finishes its closure first.  New variables are placed on new ps, too; a ps that holds variables stays.

    It can be called from any thread, while closures are queued or run; a second call waits for the first.  The first
    call has the coordinator handle lost workers our way: one that comes back takes closures again without waiting for
    the others.

    Args:
        coordinator: a ``tf.distribute.coordinator.ClusterCoordinator``.
        resolver: the cluster; what it is now counts, also for a snapshot.
        timeout: how long to wait for tasks that come to listen and for workers that go to finish, in seconds.

    Returns:
        The changes that were carried out, and those that were not, with the reason.

    Raises:
        TasksUnreachableError: tasks did not answer in time.  Its text says whether anything was changed.
        TasksBusyError: a worker did not finish its closure in time, or another resize did not end; nothing was changed.
        RestartNeededError: only a restart of the coordinator can follow the change, or this TensorFlow cannot be
            resized; nothing was changed.
        ArgumentError: an argument is of another type, or the timeout is below 0 or not a number.
        TensorFlowNotFoundError: TensorFlow is not installed.
        ViewError: the view is missing, unreadable, malformed or too new.
    """
    timeout = min(seconds(timeout, "timeout"), _LONGEST)
    deadline = time.monotonic() + timeout
    engine = _engine_of("resize()", coordinator, resolver, deadline)
    if not engine.resizing.acquire(timeout=timeout):
        raise TasksBusyError(f"another resize did not end within {timeout:g} s. This one changed nothing: try again")
    try:
        from tfcluster_resolver.elastic.change import follow_once  # noqa: PLC0415 - it imports TensorFlow

        with engine.sockets.watched():
            # A snapshot's view would undo changes that follow() has made since.
            return follow_once(engine, resolver._live_again(), deadline, wait=True)[0]  # noqa: SLF001 - of this package
    finally:
        engine.resizing.release()


def _engine_of(what: str, coordinator: Any, resolver: TFClusterResolver, deadline: float) -> ElasticEngine:
    if not isinstance(resolver, TFClusterResolver):
        raise ArgumentTypeError(f"{what} takes a TFClusterResolver, not {type(resolver).__name__}")
    tensorflow_api.load(what)
    from tfcluster_resolver.elastic.change import engine_of  # noqa: PLC0415 - it imports TensorFlow

    return engine_of(coordinator, deadline)


def follow(
    coordinator: Any,
    resolver: TFClusterResolver,
    *,
    timeout: float = 300.0,
    on_change: Callable[[Change], None] | None = None,
) -> Following:
    """Keep a running ClusterCoordinator in step with its cluster, in the background.

    Every new epoch is followed as :func:`tfcluster_resolver.resize` would, but no task waits for another one: each new
    worker takes closures as soon as it and those below it listen.  A worker whose pod is replaced takes closures again
    as soon as the new one listens, also if its machine failed silently; the others continue in the meantime.  It logs
    to the logger ``tfcluster_resolver``::

        with follow(coordinator, resolver):
            train()

    Args:
        coordinator: a ``tf.distribute.coordinator.ClusterCoordinator``; it can run closures already.
        resolver: the cluster; that of a snapshot is followed from now on, too.
        timeout: how long to wait for TensorFlow if it is connecting to lost workers itself, in seconds.
        on_change: called with each change, in the thread that follows.

    Returns:
        The object that follows the cluster; leaving its ``with`` block ends it.

    Raises:
        ArgumentError, RestartNeededError, TasksUnreachableError, TensorFlowNotFoundError: see
            :func:`tfcluster_resolver.resize`; later ones are in ``error`` and in the log.
    """
    deadline = time.monotonic() + min(seconds(timeout, "timeout"), _LONGEST)
    return Following(_engine_of("follow()", coordinator, resolver, deadline), resolver, on_change)


class Following:
    """A thread that keeps a running program in step with its cluster; :func:`follow` makes it.

    Attributes:
        epoch: the epoch that the program is in step with; -1 before the first.
        change: what was changed last; None while nothing was.
        error: why it is not in step with the newest epoch at the moment; None where it is.
    """

    def __init__(
        self, engine: ElasticEngine, resolver: TFClusterResolver, on_change: Callable[[Change], None] | None
    ) -> None:
        self.epoch = -1
        self.change: Change | None = None
        self.error: Exception | None = None
        self._engine, self._resolver, self._on_change = engine, resolver, on_change
        self._source = resolver._live_again()._source  # noqa: SLF001 - of this package
        self._done: Any = None
        self._refused: tuple[Refusal, ...] = ()
        self._patience = _FIRST_TRY
        self._ended = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="tfcluster-follow", daemon=True)
        self._thread.start()

    def wait_for_epoch(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until the program is in step with an epoch, or a newer one.

        Args:
            epoch: the epoch.
            timeout: how long to wait, in seconds; None for as long as it takes.

        Returns:
            Whether it is; False after the timeout, or where following has ended.
        """
        longest = seconds_or_none(timeout, "timeout")
        with self._news:
            self._news.wait_for(
                lambda: self.epoch >= epoch or self._ended.is_set(), None if longest is None else min(longest, _LONGEST)
            )
            return self.epoch >= epoch

    def close(self) -> None:
        """End following.  The program continues with its tasks, and lost workers return as before.

        A change in progress can still be finished some seconds later.
        """
        self._ended.set()
        with self._news:
            self._news.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(_END)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self) -> None:
        with self._engine.sockets.watched():
            while not self._ended.is_set() and not self._engine.running.stopped:
                self._ended.wait((self._source.interval or _LOOK) if self._in_step() else _LOOK_AT_LATE)

    def _in_step(self) -> bool:
        """Follow the current cluster; return whether nothing is left to do for it."""
        from tfcluster_resolver.elastic.change import follow_once  # noqa: PLC0415 - it imports TensorFlow

        mark: Any = None
        try:
            if _mark(self._source.view()) == self._done:
                return True
            with self._engine.resizing:
                # Read again, because a resize that this waited for can have followed a newer view.
                view = self._source.view()
                mark = _mark(view)
                now = self._resolver._frozen_at(view)  # noqa: SLF001 - of this package
                began = time.monotonic()

                def outdated() -> bool:
                    return time.monotonic() > began + self._patience and self._is_outdated(mark)

                change, late = follow_once(self._engine, now, began + _TRY, wait=False, outdated=outdated)
        except Exception as error:  # noqa: BLE001 - the program continues, and it is told
            if mark is not None and self._is_outdated(mark):
                self._patience = min(2 * self._patience, _TRY)
                return False
            if str(error) != str(self.error):
                _log.warning("the program does not follow its cluster at the moment: %s", error)
            self.error = error
            if isinstance(error, RestartNeededError):
                self._done = mark
            return False
        self.error, self._patience = None, _FIRST_TRY
        self._report(change)
        if late:
            return False
        self._done = mark
        with self._news:
            self.epoch = change.epoch
            self._news.notify_all()
        return True

    def _is_outdated(self, mark: Any) -> bool:
        try:
            return self._ended.is_set() or _mark(self._source.view()) != mark
        except ViewError:
            return False

    def _report(self, change: Change) -> None:
        news = change.refused != self._refused
        self._refused = change.refused
        if change:
            self.change = change
            parts = {"added": change.added, "removed": change.removed, "replaced": change.replaced}
            words = ", ".join(f"{word} {', '.join(map(str, tasks))}" for word, tasks in parts.items() if tasks)
            _log.info("the program follows epoch %d: %s", change.epoch, words)
        for refusal in change.refused if news else ():
            _log.warning("the program does not follow a part of epoch %d: %s", change.epoch, refusal)
        if self._on_change is not None and (change or news):
            try:
                self._on_change(change)
            except Exception:  # noqa: BLE001 - the caller's own
                _log.exception("on_change failed for epoch %d; the program continues", change.epoch)


def _mark(view: contract.View) -> Any:
    """Return the parts of two views that are followed differently."""
    return view.uid, view.epoch, view.incarnations
