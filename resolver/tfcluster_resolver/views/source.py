"""What a source of views must be able to do."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from tfcluster_resolver import contract


class ViewSource(Protocol):
    """Where a resolver's view comes from: a mounted file, the API server, or what somebody gave."""

    def view(self) -> contract.View:
        """Give the view as it is now.

        Raises:
            ViewError: it cannot be had, or is none.
        """

    def notice(self) -> Notice | None:
        """Give what tells that the view may have changed; None where it never changes."""


class Notice(Protocol):
    """Something to wait on; it is closed at the end of its ``with`` block."""

    def wait(self, timeout: float) -> None:
        """Return when there may be something new, at the latest after ``timeout`` seconds."""

    def __enter__(self) -> Self:
        """Begin to collect what happens."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
