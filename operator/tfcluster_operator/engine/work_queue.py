"""The keyed work queue: one worker at a time processes a key, however often it was marked."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from tfcluster_operator.kube.client import SYSTEM_CLOCK, Backoff, masked
from tfcluster_operator.kube.clusters import Key

_log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
#: While the API server is unavailable: when it is back, the status should be correct within seconds.
_LONGEST_OUTAGE_PAUSE: Final = 3.0
#: A key rests this many times as long as its last reconcile took, so that a thousand pod events do not cause a thousand
#: reconciles of a thousand pods; an urgent mark (an edit) skips the rest.
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


class RetryLater(Exception):  # noqa: N818 - it is a wish, not an error of the program
    """The reconcile could not finish for a reason that is already reported; it is retried with growing back-off."""


class NextPart(Exception):  # noqa: N818 - it is a wish, not an error of the program
    """The reconcile did one part: the next part follows without a rest, after the keys that already wait."""


class WorkQueue:
    """A queue of keys: ``work`` reconciles one and returns the seconds until the next; ``took`` gets its duration."""

    def __init__(
        self,
        work: Callable[[Key], Awaitable[float | None]],
        *,
        clock: Callable[[], float] = SYSTEM_CLOCK.elapsed,
        took: Callable[[float, str], None] = lambda _seconds, _outcome: None,
    ) -> None:
        self._work = work
        self._clock = clock
        self._took = took
        #: The keys that are due, and since when: those that are ahead (True), and the others.
        self._due: dict[bool, OrderedDict[Key, float]] = {True: OrderedDict(), False: OrderedDict()}
        #: When each other key that is marked will be due, whether it is ahead, and its timer.
        self._later: dict[Key, tuple[float, bool, asyncio.TimerHandle]] = {}
        self._started = 0
        self._busy: set[Key] = set()
        self._marked_while_busy: dict[Key, tuple[float, bool, bool]] = {}
        #: Until when each key rests; the second time applies if it is ahead.
        self._rest_until: dict[Key, tuple[float, float]] = {}
        self._backoffs: dict[Key, Backoff] = {}
        self._wake = asyncio.Event()

    def mark(self, key: Key, *, after: float = 0.0, urgent: bool = False, ahead: bool = False) -> None:
        """Request a reconcile of a key."""
        now = self._clock()
        due = now + after
        if key in self._busy:
            known, was_urgent, was_ahead = self._marked_while_busy.get(key, (due, False, False))
            self._marked_while_busy[key] = (min(known, due), urgent or was_urgent, ahead or was_ahead)
            return
        if not urgent:
            due = max(due, self._rest_until.get(key, (due, due))[ahead])
        if key in self._due[True]:
            return
        if key in self._due[False]:
            if ahead:
                self._due[True][key] = self._due[False].pop(key)
            return
        if (later := self._later.get(key)) is not None:
            known, is_ahead, timer = later
            due, ahead = min(known, due), ahead or is_ahead
            if (known, is_ahead) == (due, ahead):
                return
            timer.cancel()
        if due > now:
            timer = asyncio.get_running_loop().call_later(due - now, self._fall_due, key, due, ahead)
            self._later[key] = due, ahead, timer
        else:
            self._fall_due(key, due, ahead)

    def _fall_due(self, key: Key, due: float, ahead: bool) -> None:
        self._later.pop(key, None)
        self._due[ahead][key] = due
        self._wake.set()

    def overdue(self) -> tuple[int, float]:
        """Return how many keys are overdue, and for how many seconds the first of them has waited."""
        since = [*self._due[True].values(), *self._due[False].values()]
        return len(since), self._clock() - min(since) if since else 0.0

    def forget(self, key: Key) -> None:
        """Drop the state of a key that no longer exists."""
        self._rest_until.pop(key, None)
        self._backoffs.pop(key, None)

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
        ahead, others = self._due[True], self._due[False]
        while not ahead and not others:
            self._wake.clear()
            await self._wake.wait()
        self._started += 1
        others_turn = others and self._started % _OTHERS_EVERY == 0
        key, _ = (ahead if ahead and not others_turn else others).popitem(last=False)
        return key

    async def _pass(self, key: Key) -> None:
        began, outcome, goes_on = self._clock(), "done", False
        after: float | None
        try:
            after = await self._work(key)
        except NextPart:
            after, goes_on = 0.0, True
        except RetryLater as wish:
            # In an outage every cluster fails every few seconds: log it once for each.
            level = logging.DEBUG if key in self._backoffs else logging.INFO
            _log.log(level, "tried again: %s", masked(str(wish)), extra=_fields(key))
            outcome, after = "retried", min(_LONGEST_OUTAGE_PAUSE, self._pause(key))
        except Exception:  # noqa: BLE001 - the one place that catches anything: one cluster must not stop the others
            _log.exception("the pass failed", extra=_fields(key))
            outcome, after = "failed", self._pause(key)
        if outcome == "done":
            self._backoffs.pop(key, None)
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

    def _pause(self, key: Key) -> float:
        return self._backoffs.setdefault(key, Backoff(_FIRST_PAUSE, longest=_LONGEST_PAUSE)).next()


def _fields(key: Key) -> dict[str, dict[str, str]]:
    return {"fields": {"cluster": "/".join(key)}}
