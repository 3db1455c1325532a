"""The time that the tests live in: the machine's, or the virtual one of an API server in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic(self) -> float:
        """Give seconds from some moment on, which never go back."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def time(self) -> float:
        """Give the seconds since the epoch."""


#: The one clock of the process.
_current: Clock = time


@contextmanager
def instead(clock: Clock) -> Iterator[None]:
    """Have all tests live in another time for the length of a ``with`` block."""
    global _current  # noqa: PLW0603 - every helper that waits asks it, and none of them knows the world
    before, _current = _current, clock
    yield
    _current = before


def monotonic() -> float:
    """Give seconds from some moment on, which never go back."""
    return _current.monotonic()


def sleep(seconds: float) -> None:
    """Let time pass."""
    _current.sleep(seconds)


def now() -> datetime:
    """Give the time of day."""
    return datetime.fromtimestamp(_current.time(), UTC)
