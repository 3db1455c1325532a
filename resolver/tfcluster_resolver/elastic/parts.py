"""What a change of a running program is made of: the threads that it holds, and the cluster that it asks for.

It decides nothing; :mod:`tfcluster_resolver.elastic.engine` works with it.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Collection
from typing import Any

from tfcluster_resolver._tensorflow import workers as workers_of
from tfcluster_resolver._tensorflow.workers import END, GO_ON, RECOVER
from tfcluster_resolver.elastic.plan import Change

#: Job and index of a task.
TaskKey = tuple[str, int]


class Hold:
    """Keeps a worker's thread between two closures until it is decided what becomes of it."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.left = threading.Event()
        self._decided = threading.Event()
        self._fate = GO_ON
        self._farewell: Callable[[], None] | None = None

    def decide(self, fate: str, farewell: Callable[[], None] | None = None) -> None:
        """Let the thread go: GO_ON, RECOVER or END; the first word counts."""
        if not self._decided.is_set():
            self._fate, self._farewell = fate, farewell
            self._decided.set()

    def wait(self) -> str:
        """Wait, in the worker's thread, and give its fate."""
        self.held.set()
        self._decided.wait()
        if self._farewell is not None:
            with contextlib.suppress(Exception):
                self._farewell()
        self.left.set()
        return self._fate

    def act(self, worker: Any) -> None:
        """Wait in the thread of a worker that lives, and do what its fate says, once."""
        if self.left.is_set():
            return
        fate = self.wait()
        if fate == END:
            workers_of.leave(worker)
        elif fate == RECOVER:
            workers_of.recover(worker)


class Request:
    """A change of the cluster that the thread is to make.

    Args:
        wanted: the cluster as it shall be, a ServerDef message.
        before: done when TensorFlow is about to be asked.
        after: done when TensorFlow's cluster has changed, with the workers that were left out because they are down;
            gives what has to live until then.
        outcome: gives the change as it turned out, once it is done.
        final: whether it cannot be taken back once ``before`` was done.
    """

    def __init__(
        self,
        wanted: Any,
        before: Callable[[], None],
        after: Callable[[Collection[int]], list[Any]],
        outcome: Callable[[], Change],
        *,
        final: bool,
    ) -> None:
        self.wanted, self.before, self.after, self.outcome, self.final = wanted, before, after, outcome, final
        self.previous: Any = None
        self.begun = self.updating = False
        self.error: Exception | None = None
        self.done = threading.Event()


def tasks_of(server_def: Any) -> dict[TaskKey, str]:
    """Give the addresses of a cluster's tasks but the own one's."""
    return {
        (job.name, index): address
        for job in server_def.cluster.job
        for index, address in job.tasks.items()
        if job.name != server_def.job_name
    }


def without(server_def: Any, workers: Collection[int]) -> Any:
    """Copy a cluster, without some of its workers."""
    new = copy.deepcopy(server_def)
    for job in new.cluster.job:
        if job.name == "worker":
            for index in workers:
                job.tasks.pop(index, None)
    return new
