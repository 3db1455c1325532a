"""The clock of the tests: the machine's, or the virtual one of an API server in memory."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def time(self) -> float:
        """Return the seconds since the epoch."""


_current: Clock = time


@contextmanager
def instead(clock: Clock) -> Iterator[None]:
    """Use another clock in all tests for a ``with`` block."""
    global _current  # noqa: PLW0603 - every helper that waits asks it, and none of them knows the world
    before, _current = _current, clock
    yield
    _current = before


def monotonic() -> float:
    """Return monotonic seconds."""
    return _current.monotonic()


def sleep(seconds: float) -> None:
    _current.sleep(seconds)


def now() -> datetime:
    return datetime.fromtimestamp(_current.time(), UTC)
