"""The time as decisions see it, which only goes forward whatever is done to the machine's clock; and pauses.

The wall clock is read once, at the start; from there on a clock that nobody can set tells how much time has passed.  So
a step of the machine's clock, by an administrator or by NTP, neither delays nor hurries anything.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Clock:
    """Two readings of one clock.

    ``wall`` gives seconds since the epoch, as statuses and events spell them; ``elapsed`` gives seconds since some
    moment before the start.  Both advance together and never step.
    """

    wall: Callable[[], float]
    elapsed: Callable[[], float]


def steady(wall: Callable[[], float], elapsed: Callable[[], float]) -> Clock:
    """Make a clock that reads ``wall`` once, now, and advances by ``elapsed``.

    Args:
        wall: seconds since the epoch, by a clock that can step.
        elapsed: seconds, by a clock that cannot.
    """
    behind = wall() - elapsed()
    return Clock(wall=lambda: behind + elapsed(), elapsed=elapsed)


class Backoff:
    """Pauses, in seconds, that double up to the longest, with jitter."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = self._pause = first
        self._longest = longest

    def next(self, at_least: float = 0.0) -> float:
        """Return the next one."""
        pause, self._pause = max(self._pause, at_least), min(self._longest, self._pause * 2)
        return pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, no secret

    def reset(self) -> None:
        """Begin with the first again."""
        self._pause = self._first


def _since_boot() -> float:
    # CLOCK_MONOTONIC stands still while a machine sleeps; a Lease that others can take does not.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


SYSTEM: Final = steady(time.time, _since_boot)
