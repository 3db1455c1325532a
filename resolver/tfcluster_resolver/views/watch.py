"""Sources of views, and watching one for new epochs.

A notification does not say what happened: the waiting thread reads the files again, sometimes early and never too late.
Linux's inotify reports the kubelet's swap immediately; if it is missing, or its watches are used up, a short sleep
replaces it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tfcluster_resolver import contract
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.errors import ViewError

if TYPE_CHECKING:
    from typing import Self  # not in Python 3.10

_T = TypeVar("_T")

#: Seconds between two looks without inotify.
_POLL: Final = 0.05
#: Seconds between two checks with it, for a folder that was moved away, or a file system without notifications.
_LOOK_ANYWAY: Final = 1.0

#: Seconds that a view can be missing, unreachable or half-written before the watch fails with its error.
GRACE: Final = 5.0

# The numbers of Linux's <sys/inotify.h>, the same on every architecture.
#: All but an event for each written byte (IN_MODIFY): a file that is being written is not a view yet.
_EVENTS: Final = (
    0x4  # IN_ATTRIB
    | 0x8  # IN_CLOSE_WRITE
    | 0x40  # IN_MOVED_FROM
    | 0x80  # IN_MOVED_TO
    | 0x100  # IN_CREATE
    | 0x200  # IN_DELETE
    | 0x400  # IN_DELETE_SELF
    | 0x800  # IN_MOVE_SELF
    | 0x0100_0000  # IN_ONLYDIR
)
_IN_IGNORED: Final = 0x8000
#: Watch, mask, cookie, and the length of the name that follows.
_EVENT: Final = struct.Struct("iIII")


class ViewSource(Protocol):
    """The source of a resolver's view: a mounted file, the API server, or the caller's argument."""

    def view(self) -> contract.View:
        """Return the current view, or raise ViewError if it is unavailable or malformed."""

    def notice(self) -> PollingNotice | None:
        """Return the notice of changes; None if the view never changes."""


@dataclass(frozen=True, slots=True)
class FrozenView:
    """The view of one moment, and its source; None for a view from a text."""

    frozen: contract.View
    live: ViewSource | None = None

    def view(self) -> contract.View:
        return self.frozen

    def notice(self) -> None:
        """It never changes."""


class PollingNotice:
    """Returns every ``interval`` seconds; it is closed at the end of its ``with`` block."""

    def __init__(self, interval: float = _POLL) -> None:
        self._interval = interval

    def wait(self, timeout: float) -> None:
        """Return when something can be new, at the latest after ``timeout`` seconds."""
        time.sleep(max(0.0, min(self._interval, timeout)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class FolderNotice(PollingNotice):
    """Notices any change between two waits in one folder, which can be missing, replaced or moved."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._inotify: int | None = None
        self._watched: tuple[int, int] | None = None
        self._process = 0

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *error: object) -> None:
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None

    def wait(self, timeout: float) -> None:
        if self._process != os.getpid():  # the inotify is the parent process's
            self._begin()
            return
        ended = False
        if self._inotify is None or self._watched is None:
            super().wait(timeout)
        else:
            poll = select.poll()
            poll.register(self._inotify, select.POLLIN)
            if poll.poll(max(0.0, min(_LOOK_ANYWAY, timeout)) * 1000):
                with contextlib.suppress(BlockingIOError):  # a process that was forked has read it
                    ended = _ended(os.read(self._inotify, 65536))
        # A folder that is created again can get the inode of the removed one.
        if self._inotify is not None and (ended or _identity(self._folder) != self._watched):
            self._begin()

    def _begin(self) -> None:
        """Watch the folder that has the path now, with another inotify; poll, if that fails."""
        self.__exit__()
        self._process = os.getpid()
        self._inotify = _open_inotify()
        # The identity is taken first.  If the folder is replaced in between, the next wait sees another one and opens a
        # new watch; the other way round the new folder's identity would hide that the old one is watched.
        identity = _identity(self._folder)
        self._watched = None
        if self._inotify is not None and identity is not None and _add_watch(self._inotify, self._folder):
            self._watched = identity


def _ended(events: bytes) -> bool:
    at = 0
    while at < len(events):
        _, mask, _, length = _EVENT.unpack_from(events, at)
        if mask & _IN_IGNORED:
            return True
        at += _EVENT.size + length
    return False


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)  # noqa: PTH116 - of text, many times
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open_inotify() -> int | None:
    try:
        descriptor = ctypes.CDLL(None, use_errno=True).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError, TypeError):  # macOS lacks the function, Windows the library
        return None
    return int(descriptor) if descriptor >= 0 else None


def _add_watch(descriptor: int, folder: str) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    return bool(library.inotify_add_watch(descriptor, os.fsencode(folder), ctypes.c_uint32(_EVENTS)) >= 0)


class Watch(Iterator[_T]):
    """Waits for new epochs, and returns each as it comes; of several quick ones at least the last.

    An error does not end a watch: the next call continues from the last epoch.  A watch that timed out or was closed,
    from any thread, has ended for good.  A process that was forked continues with a watch of its own.
    """

    def __init__(
        self,
        read: Callable[[], Membership],
        known: Membership,
        notice: PollingNotice | None,
        timeout: float | None,
        make_event: Callable[[Membership, Membership], _T],
    ) -> None:
        self._read, self._known, self._make_event = read, known, make_event
        self._notice, self._timeout = notice, timeout
        self._begun = False
        self._closed = False
        #: Held by the waiting thread: no other thread closes the descriptors that it waits on.
        self._waiting = threading.Lock()

    def __next__(self) -> _T:
        """Wait for the next epoch; ViewError if the view could not be read for GRACE seconds, or at the end."""
        with self._waiting:
            now = None if self._notice is None else self._await_change(self._notice)
            if now is None:
                self._end()
                raise StopIteration
            before, self._known = self._known, now
        return self._make_event(before, now)

    def _await_change(self, notice: PollingNotice) -> Membership | None:
        if not self._begun and not self._closed:
            self._begun = True
            notice.__enter__()
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
            notice.wait(left)
        return None

    def close(self) -> None:
        """End the watch and close its descriptor; a thread that waits ends within a second.

        An abandoned watch is closed too.
        """
        self._closed = True
        if self._waiting.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._waiting.release()

    def _end(self) -> None:
        self._closed = True
        if self._notice is not None and self._begun:
            self._begun = False
            self._notice.__exit__(None, None, None)

    def __del__(self) -> None:
        self.close()
