"""Sources of views, and watching one for new epochs.

A watch reads again and again: a mounted file that has not changed costs one ``stat``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeVar

from tfcluster_resolver import contract
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.errors import ViewError

_T = TypeVar("_T")

#: Seconds that a view can be missing, unreachable or half-written before the watch fails with its error.
GRACE: Final = 5.0


class ViewSource(Protocol):
    """The source of a resolver's view: a mounted file, the API server, or the caller's argument."""

    @property
    def interval(self) -> float | None:
        """The seconds between two looks for a change; None if the view never changes."""

    def view(self) -> contract.View:
        """Return the current view, or raise ViewError if it is unavailable or malformed."""


@dataclass(frozen=True, slots=True)
class FrozenView:
    """The view of one moment, and its source; None for a view from a text."""

    frozen: contract.View
    live: ViewSource | None = None
    interval: ClassVar[None] = None

    def view(self) -> contract.View:
        return self.frozen


class Watch(Iterator[_T]):
    """Waits for new epochs, and returns each as it comes; of several quick ones at least the last.

    An error does not end a watch: the next call continues from the last epoch.  A watch that timed out or was closed,
    from any thread, has ended for good.
    """

    def __init__(
        self,
        read: Callable[[], Membership],
        known: Membership,
        interval: float | None,
        timeout: float | None,
        make_event: Callable[[Membership, Membership], _T],
    ) -> None:
        self._read, self._known, self._make_event = read, known, make_event
        self._interval, self._timeout = interval, timeout
        self._closed = False

    def __next__(self) -> _T:
        """Wait for the next epoch; ViewError if the view could not be read for GRACE seconds, or at the end."""
        now = None if self._interval is None else self._await_change(self._interval)
        if now is None:
            self._closed = True
            raise StopIteration
        before, self._known = self._known, now
        return self._make_event(before, now)

    def _await_change(self, interval: float) -> Membership | None:
        asked = time.monotonic()
        failing_since: float | None = None
        while not self._closed:
            left = float("inf") if self._timeout is None else asked + self._timeout - time.monotonic()
            try:
                now = self._read()
            except ViewError:
                failing_since = time.monotonic() if failing_since is None else failing_since
                left = min(left, failing_since + GRACE - time.monotonic())
                if left <= 0:
                    raise
            else:
                failing_since = None
                if now.mark != self._known.mark:
                    return now
                if left <= 0:
                    return None
            time.sleep(min(interval, left))
        return None

    def close(self) -> None:
        """End the watch; a thread that waits ends within a second."""
        self._closed = True
