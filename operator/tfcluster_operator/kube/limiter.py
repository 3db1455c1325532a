"""The number of concurrent requests: a window that grows while the server keeps up and shrinks when it answers 429.

It starts slowly (one more for each answer), shrinks by three tenths after a rejection, at most once in a tenth of a
second, holds for half a second and then grows slowly.  Waiting requests are served in order, so no cluster starves;
reports (status, events) wait while any request that builds a cluster waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tfcluster_operator.kube import clock as clocks

_FLOOR: Final = 2.0
_SHRINK: Final = 0.7
_SHRINK_AT_MOST_EVERY: Final = 0.1
_HOLD: Final = 0.5
_CLIMB: Final = 0.05


class AdaptiveLimiter:
    """A window over the requests of one process; more connections than ``ceiling`` slow a client down."""

    def __init__(
        self, *, start: float = 8.0, ceiling: float = 32.0, elapsed: Callable[[], float] = clocks.SYSTEM.elapsed
    ) -> None:
        self._elapsed = elapsed
        self._window = start
        self._ceiling = ceiling
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_to_report: deque[asyncio.Future[None]] = deque()
        self._throttled_at = float("-inf")

    @asynccontextmanager
    async def slot(self, *, urgent: bool = True) -> AsyncIterator[None]:
        """Hold one place in the window for one request."""
        if self._waiting or self._waiting_to_report or self._under_way >= int(self._window):
            turn = asyncio.get_running_loop().create_future()
            (self._waiting if urgent else self._waiting_to_report).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._under_way -= 1
                    self._admit()
                raise
        else:
            self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._admit()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting) + len(self._waiting_to_report)

    def answered(self) -> None:
        """Note that the server kept up with a request."""
        if self._throttled_at == float("-inf"):
            self._window = min(self._ceiling, self._window + 1.0)
        elif self._elapsed() - self._throttled_at > _HOLD:
            self._window = min(self._ceiling, self._window + _CLIMB)

    def throttled(self) -> None:
        """Note that the server rejected a request because it had too many."""
        now = self._elapsed()
        if now - self._throttled_at > _SHRINK_AT_MOST_EVERY:
            self._window = max(_FLOOR, self._window * _SHRINK)
            self._throttled_at = now

    def _admit(self) -> None:
        while (queue := self._waiting or self._waiting_to_report) and self._under_way < int(self._window):
            turn = queue.popleft()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)
