"""Following a cluster's changes while a program runs.

It decides when to resize: at each new epoch, at each task that becomes another pod, and again while tasks that come do
not listen yet.  What can be followed is followed at once; nobody waits for the others.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from tfcluster_resolver import contract
from tfcluster_resolver._arguments import seconds, seconds_or_none
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.elastic.plan import Change, Refusal
from tfcluster_resolver.errors import ArgumentTypeError, RestartNeededError
from tfcluster_resolver.resolver import TFClusterResolver

if TYPE_CHECKING:
    from tfcluster_resolver.elastic.engine import ElasticEngine

_log: Final = logging.getLogger(__name__)

#: Seconds between two looks at the view, and at tasks that do not listen yet.
_LOOK: Final = 1.0
_LOOK_AT_LATE: Final = 0.25
#: Seconds that one change may take before the next one is looked at; it is tried again.
_TRY: Final = 30.0
#: Seconds that the end of following waits for a change that is being made.
_END: Final = 5.0


#: Seconds that Python can wait for at most, and some to spare.
LONGEST: Final = threading.TIMEOUT_MAX / 2


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
        self._source = resolver._live() or resolver._source  # noqa: SLF001 - of this package
        self._done: Any = None
        self._refused: tuple[Refusal, ...] = ()
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
                lambda: self.epoch >= epoch or self._ended.is_set(), None if longest is None else min(longest, LONGEST)
            )
            return self.epoch >= epoch

    def close(self) -> None:
        """End following.  The program goes on with the tasks that it has, and lost workers come back as before.

        A change that is under way may still be finished some seconds later.
        """
        self._ended.set()
        with self._news:
            self._news.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(_END)

    def __enter__(self) -> Self:
        """Give it as it is: it follows already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End following."""
        self.close()

    def _run(self) -> None:
        notice = self._source.notice()
        with contextlib.ExitStack() as open_meanwhile:
            open_meanwhile.enter_context(self._engine.sockets.watched())
            if notice is not None:
                open_meanwhile.enter_context(notice)
            while not self._ended.is_set() and not self._engine.running.stopped:
                pause = _LOOK if self._in_step() else _LOOK_AT_LATE
                if notice is None or pause < _LOOK:
                    self._ended.wait(pause)
                else:
                    notice.wait(pause)

    def _in_step(self) -> bool:
        """Follow what the cluster is now; tells whether nothing is left to do for it."""
        mark: Any = None
        try:
            if _mark(self._source.view()) == self._done:
                return True
            with self._engine.resizing:
                # NB: read again, because a resize that this waited for may have followed a newer view.
                view = self._source.view()
                mark = _mark(view)
                change, late = self._step(self._resolver._frozen_at(view))  # noqa: SLF001 - of this package
        except Exception as error:  # noqa: BLE001 - the program goes on, and it is told
            if str(error) != str(self.error):
                _log.warning("the program does not follow its cluster at the moment: %s", error)
            self.error = error
            if isinstance(error, RestartNeededError):
                self._done = mark
            return False
        self.error = None
        self._report(change)
        if late:
            return False
        self._done = mark
        with self._news:
            self.epoch = change.epoch
            self._news.notify_all()
        return True

    def _step(self, now: TFClusterResolver) -> tuple[Change, tuple[Any, ...]]:
        module = importlib.import_module("tfcluster_resolver.elastic.change")
        step: tuple[Change, tuple[Any, ...]] = module.follow_once(
            self._engine, now, time.monotonic() + _TRY, wait=False
        )
        return step

    def _report(self, change: Change) -> None:
        news = change.refused != self._refused
        self._refused = change.refused
        if change:
            self.change = change
            _log.info("the program follows epoch %d: %s", change.epoch, _words(change))
        for refusal in change.refused if news else ():
            _log.warning("the program does not follow a part of epoch %d: %s", change.epoch, refusal)
        if self._on_change is not None and (change or news):
            try:
                self._on_change(change)
            except Exception:  # noqa: BLE001 - the caller's own
                _log.exception("on_change failed for epoch %d; the program goes on", change.epoch)


def _mark(view: contract.View) -> Any:
    """Give what differs between two views that are followed differently."""
    return view.uid, view.epoch, view.incarnations


def _words(change: Change) -> str:
    parts = {"added": change.added, "removed": change.removed, "replaced": change.replaced}
    return ", ".join(f"{word} {', '.join(map(str, tasks))}" for word, tasks in parts.items() if tasks)


def follow(
    coordinator: Any,
    resolver: TFClusterResolver,
    *,
    timeout: float = 300.0,
    on_change: Callable[[Change], None] | None = None,
) -> Following:
    """Keep a running ClusterCoordinator in step with its cluster, in the background.

    Every new epoch is followed as :func:`tfcluster_resolver.resize` would, but nobody waits for another one: each new
    worker takes closures as soon as it and those below it listen.  A worker whose pod is replaced takes closures again
    as soon as the new one listens, also where its machine went without a word; the others go on meanwhile.  It says
    what it does to the logger ``tfcluster_resolver``::

        with follow(coordinator, resolver):
            train()

    Args:
        coordinator: a ``tf.distribute.coordinator.ClusterCoordinator``; it may run closures already.
        resolver: the cluster; that of a snapshot is followed from now on, too.
        timeout: how long to wait for TensorFlow where it is connecting to lost workers itself, in seconds.
        on_change: called with each change, in the thread that follows.

    Returns:
        What follows; leaving its ``with`` block ends it.

    Raises:
        ArgumentError, RestartNeededError, TasksUnreachableError, TensorFlowNotFoundError: see
            :func:`tfcluster_resolver.resize`; later ones are in ``error`` and in the log.
    """
    deadline = time.monotonic() + min(seconds(timeout, "timeout"), LONGEST)
    if not isinstance(resolver, TFClusterResolver):
        raise ArgumentTypeError(f"follow() takes a TFClusterResolver, not {type(resolver).__name__}")
    tensorflow_api.load("follow()")
    module = importlib.import_module("tfcluster_resolver.elastic.change")
    return Following(module.engine_of(coordinator, deadline), resolver, on_change)
