"""The keyed work queue: one worker at a time processes a key, however often it was marked.

The earlier of two marks wins.  Between two reconciles of a key is a rest that grows with the duration of the last one,
so that a thousand pod events do not cause a thousand reconciles of a thousand pods; an urgent mark (an edit) skips it.
If many keys wait, those with something to create come before those with only something to report.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from tfcluster_operator.kube import clock as clocks
from tfcluster_operator.kube import errors

_log = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)

_NEVER: Final = float("inf")
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 60.0
#: While the API server is unavailable: when it is back, the status should be correct within seconds.
_LONGEST_OUTAGE_PAUSE: Final = 3.0
#: A key rests this many times as long as its last reconcile took.
_REST: Final = 4.0
#: The shortest and the longest rest of a key, in seconds.
_LEAST_REST: Final = 0.5
_LONGEST_REST: Final = 1.0
#: The longest rest of a key that is ahead, in seconds: a slow server makes reconciles long, and lost pods are urgent.
_LONGEST_REST_AHEAD: Final = 0.1
#: One of this number of reconciles is for a key that is not ahead, if there is one.
_OTHERS_EVERY: Final = 8
#: Expired rests are dropped when there are more than this.
_RESTING_AT_MOST: Final = 1_000
#: Entries that an earlier mark has made stale are swept out of the heap when there are more than this.
_STALE_AT_MOST: Final = 64


class RetryLater(Exception):  # noqa: N818 - it is a wish, not an error of the program
    """The reconcile could not finish for a reason that is already reported; it is retried with growing back-off."""


class NextPart(Exception):  # noqa: N818 - it is a wish, not an error of the program
    """The reconcile did one part: the next part follows without a rest, after the keys that already wait."""


class WorkQueue(Generic[Key]):
    """A queue of keys.

    ``work`` reconciles one key and returns the seconds until the next time, or None; ``took`` is called after it with
    its duration and the outcome: done, retried or failed.
    """

    def __init__(
        self,
        work: Callable[[Key], Awaitable[float | None]],
        *,
        clock: Callable[[], float] = clocks.SYSTEM.elapsed,
        took: Callable[[float, str], None] = lambda _seconds, _outcome: None,
    ) -> None:
        self._work = work
        self._clock = clock
        self._took = took
        #: When each key is due, and whether it is ahead.
        self._due: dict[Key, tuple[float, bool]] = {}
        #: The keys by due time, separately for those that are ahead and the others.
        self._orders: dict[bool, list[tuple[float, int, Key]]] = {True: [], False: []}
        self._sequence = 0
        self._popped = 0
        self._busy: set[Key] = set()
        self._marked_while_busy: dict[Key, tuple[float, bool, bool]] = {}
        #: Until when each key rests; the second time applies if it is ahead.
        self._rest_until: dict[Key, tuple[float, float]] = {}
        self._failures: dict[Key, int] = {}
        self._wake = asyncio.Event()

    def mark(self, key: Key, *, after: float = 0.0, urgent: bool = False, ahead: bool = False) -> None:
        """Request a reconcile of a key."""
        due = self._clock() + after
        if key in self._busy:
            known, was_urgent, was_ahead = self._marked_while_busy.get(key, (due, False, False))
            self._marked_while_busy[key] = (min(known, due), urgent or was_urgent, ahead or was_ahead)
            return
        if not urgent:
            due = max(due, self._rest_until.get(key, (due, due))[ahead])
        known_due, is_ahead = self._due.get(key, (due, False))
        mark = min(known_due, due), ahead or is_ahead
        if self._due.get(key) == mark:
            return
        self._due[key] = mark
        self._sequence += 1
        order = self._orders[mark[1]]
        heapq.heappush(order, (mark[0], self._sequence, key))
        if len(order) > 2 * len(self._due) + _STALE_AT_MOST:
            order[:] = [entry for entry in order if self._due.get(entry[2]) == (entry[0], mark[1])]
            heapq.heapify(order)
        self._wake.set()

    def overdue(self) -> tuple[int, float]:
        """Return how many keys are overdue, and for how many seconds the first of them has waited."""
        now = self._clock()
        waits = [now - due for due, _ in self._due.values() if due <= now]
        return len(waits), max(waits, default=0.0)

    def forget(self, key: Key) -> None:
        """Drop the state of a key that no longer exists."""
        self._rest_until.pop(key, None)
        self._failures.pop(key, None)

    async def run(self, workers: int) -> None:
        """Process keys forever, with this number of workers."""
        free = asyncio.Semaphore(workers)
        async with asyncio.TaskGroup() as passes:
            while True:
                # Acquire first: between the pop of a key and its reconcile nothing must wait, or it is started twice.
                await free.acquire()
                key = await self._next()
                self._busy.add(key)
                passes.create_task(self._pass(key)).add_done_callback(lambda _: free.release())

    async def _next(self) -> Key:
        while True:
            self._wake.clear()
            now, ahead, other = self._clock(), self._due_at(True), self._due_at(False)
            soonest = min(ahead, other)
            if soonest <= now:
                self._popped += 1
                others_turn = other <= now and self._popped % _OTHERS_EVERY == 0
                _, _, key = heapq.heappop(self._orders[ahead <= now and not others_turn])
                del self._due[key]
                return key
            wait = None if soonest == _NEVER else soonest - now
            await clocks.is_set(self._wake, wait)

    def _due_at(self, ahead: bool) -> float:
        """Return when the first key of an order is due, without those that were marked again since."""
        order = self._orders[ahead]
        while order and self._due.get(order[0][2]) != (order[0][0], ahead):
            heapq.heappop(order)
        return order[0][0] if order else _NEVER

    async def _pass(self, key: Key) -> None:
        began, outcome, goes_on = self._clock(), "done", False
        after: float | None
        try:
            after = await self._work(key)
        except NextPart:
            after, goes_on = 0.0, True
        except RetryLater as wish:
            outcome, after = "retried", self._pause(key, _LONGEST_OUTAGE_PAUSE)
            # In an outage every cluster fails every few seconds: log it once for each.
            level = logging.INFO if self._failures[key] == 1 else logging.DEBUG
            _log.log(level, "tried again: %s", errors.masked(str(wish)), extra=_fields(key))
        except Exception:  # noqa: BLE001 - the one place that catches anything: one cluster must not stop the others
            outcome, after = "failed", self._pause(key, _LONGEST_PAUSE)
            _log.exception("the pass failed", extra=_fields(key))
        if outcome == "done":
            self._failures.pop(key, None)
        ended = self._clock()
        self._took(ended - began, outcome)
        rest = min(_LONGEST_REST, max(_LEAST_REST, (ended - began) * _REST))
        self._rest_until[key] = ended + rest, ended + min(_LONGEST_REST_AHEAD, rest)
        self._busy.discard(key)
        if len(self._rest_until) > _RESTING_AT_MOST:
            self._rest_until = {known: until for known, until in self._rest_until.items() if until[0] > ended}
        if after is not None:
            self.mark(key, after=after, urgent=goes_on)
        if (marked := self._marked_while_busy.pop(key, None)) is not None:
            due, urgent, ahead = marked
            self.mark(key, after=max(0.0, due - self._clock()), urgent=urgent, ahead=ahead)

    def _pause(self, key: Key, longest: float) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return min(longest, _FIRST_PAUSE * 2.0 ** min(failures, 10)) * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, no secret


def _fields(key: Hashable) -> dict[str, dict[str, str]]:
    return {"fields": {"cluster": "/".join(key) if isinstance(key, tuple) else str(key)}}
