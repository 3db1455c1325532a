"""A clock that a step of the machine's clock does not change; and back-off."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: For about this long after an outage of the API server, what was read from it can be outdated.
_LONGEST: Final = 3.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Two readings that advance together: seconds since the epoch, and since a moment before the start."""

    wall: Callable[[], float]
    elapsed: Callable[[], float]


def steady(wall: Callable[[], float], elapsed: Callable[[], float]) -> Clock:
    """Return a clock that reads ``wall`` once, now, and then advances as ``elapsed`` does."""
    behind = wall() - elapsed()
    return Clock(wall=lambda: behind + elapsed(), elapsed=elapsed)


class Backoff:
    """Delays, in seconds, that double up to the longest, with jitter."""

    def __init__(self, first: float, *, longest: float = _LONGEST) -> None:
        self._first = self._pause = first
        self._longest = longest

    def next(self, at_least: float = 0.0) -> float:
        """Return the next delay."""
        pause, self._pause = max(self._pause, at_least), min(self._longest, self._pause * 2)
        return pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, no secret

    def reset(self) -> None:
        """Start with the first delay again."""
        self._pause = self._first


async def is_set(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most for some seconds; return whether it is set."""
    # Not wait_for(): on Python 3.11 it loses a cancellation that arrives together with the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _since_boot() -> float:
    # CLOCK_MONOTONIC stops while a machine sleeps, but a Lease that others can take expires.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


SYSTEM: Final = steady(time.time, _since_boot)
