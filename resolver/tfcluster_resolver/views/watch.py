"""Following the epochs of a view as they come, and noticing that something in its folder may have changed.

It wakes up early and never too late: a notice says "look", not what happened, and whoever waits looks at the files
again.  Linux's inotify tells of the kubelet's swap at once; where it is missing, or its watches are used up, a short
sleep takes its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self, TypeVar

from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.errors import ViewError
from tfcluster_resolver.views.source import Notice

_T = TypeVar("_T")

#: Seconds between two looks without inotify.
_POLL: Final = 0.05
#: Seconds between two looks with it: a folder that was moved away, or a file system that tells nothing, is noticed too.
_LOOK_ANYWAY: Final = 1.0

#: Seconds for which a view may be missing, unreachable or half-written before the watch gives up with its error.
GRACE: Final = 5.0

# The numbers of Linux's <sys/inotify.h>, the same on every architecture.
_IN_ATTRIB: Final = 0x4
_IN_CLOSE_WRITE: Final = 0x8
_IN_MOVED_FROM: Final = 0x40
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_DELETE: Final = 0x200
_IN_DELETE_SELF: Final = 0x400
_IN_MOVE_SELF: Final = 0x800
_IN_IGNORED: Final = 0x8000
_IN_ONLYDIR: Final = 0x0100_0000
#: Watch, mask, cookie, and the length of the name that follows.
_EVENT: Final = struct.Struct("iIII")
# NB: no event for each written byte (IN_MODIFY): a file that is being written is no view yet.
_EVENTS: Final = (
    _IN_ATTRIB
    | _IN_CLOSE_WRITE
    | _IN_MOVED_FROM
    | _IN_MOVED_TO
    | _IN_CREATE
    | _IN_DELETE
    | _IN_DELETE_SELF
    | _IN_MOVE_SELF
    | _IN_ONLYDIR
)


class PollingNotice:
    """Has whoever waits look again and again.

    Args:
        interval: seconds between two looks.
    """

    def __init__(self, interval: float = _POLL) -> None:
        self._interval = interval

    def wait(self, timeout: float) -> None:
        """Return after the interval, or after ``timeout`` seconds if that is sooner."""
        time.sleep(max(0.0, min(self._interval, timeout)))

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hold nothing, close nothing."""


class FolderNotice:
    """Tells of any change in one folder, which may be missing, replaced or moved meanwhile.

    What happens after ``with`` began and before a ``wait`` ends that wait at once: nothing between two looks is missed.

    Args:
        folder: the folder's path.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        self._inotify: int | None = None
        self._watched: tuple[int, int] | None = None
        self._process = 0

    def __enter__(self) -> Self:
        """Open the watch; without inotify, or without a folder yet, it polls."""
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the watch's descriptor."""
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None

    def wait(self, timeout: float) -> None:
        """Return when the folder has changed or been replaced, at the latest after ``timeout`` seconds."""
        if self._process != os.getpid():
            self._begin_again()
            return
        ended = False
        if self._inotify is None or self._watched is None:
            time.sleep(max(0.0, min(_POLL, timeout)))
        else:
            poll = select.poll()
            poll.register(self._inotify, select.POLLIN)
            if poll.poll(max(0.0, min(_LOOK_ANYWAY, timeout)) * 1000):
                with contextlib.suppress(BlockingIOError):  # a process that was forked has read it
                    ended = _ended(os.read(self._inotify, 65536))
        # NB: a folder that is made again may get the inode of the one that was removed.
        if self._inotify is not None and (ended or _identity(self._folder) != self._watched):
            self._begin_again()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._inotify = _open_inotify()
        self._watch_folder()

    def _begin_again(self) -> None:
        """Open another inotify: the old one goes on with the folder that was moved away, or with the parent process."""
        if self._inotify is not None:
            os.close(self._inotify)
        self._begin()

    def _watch_folder(self) -> None:
        """Watch the folder that has the path now; none, if that fails."""
        # NB: the identity is taken first.  If the folder is replaced in between, the next wait sees another one and
        # opens a new watch; the other way round the new folder's identity would hide that the old one is watched.
        identity = _identity(self._folder)
        self._watched = None
        if self._inotify is not None and identity is not None and _add_watch(self._inotify, self._folder):
            self._watched = identity


def _ended(events: bytes) -> bool:
    """Tell whether the watched folder itself is gone."""
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
    """Open an inotify descriptor; None where there is none, or no more."""
    try:
        descriptor = ctypes.CDLL(None, use_errno=True).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError, TypeError):  # macOS has no such function, Windows no such library
        return None
    return int(descriptor) if descriptor >= 0 else None


def _add_watch(descriptor: int, folder: str) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    return bool(library.inotify_add_watch(descriptor, os.fsencode(folder), ctypes.c_uint32(_EVENTS)) >= 0)


class Watch(Iterator[_T]):
    """Waits for new epochs, and tells each as it comes; of several quick ones at least the last.

    An error ends no watch: the next call goes on from the epoch that was told last.  A watch that timed out or was
    closed has ended for good.  A process that was forked goes on with a watch of its own.

    Args:
        read: gives the membership as it is now.
        known: the membership that is known already.
        notice: tells that it may have changed; None if it never does.
        timeout: end after so many seconds without a new one, counted from each time that the next is asked for;
            None never ends.
        tell: makes what is told of the membership before and the new one.
    """

    def __init__(
        self,
        read: Callable[[], Membership],
        known: Membership,
        notice: Notice | None,
        timeout: float | None,
        tell: Callable[[Membership, Membership], _T],
    ) -> None:
        self._read, self._known, self._tell = read, known, tell
        self._notice = notice
        self._timeout = timeout
        self._begun = False

    def __next__(self) -> _T:
        """Wait for the next epoch.

        Raises:
            StopIteration: there was none within the timeout, or the watch is closed.
            ViewError: the view could not be read for GRACE seconds, or at the end of the timeout.
        """
        if self._notice is None:
            raise StopIteration
        if not self._begun:
            self._begun = True
            self._notice.__enter__()
        now = self._await_change(self._notice)
        if now is None:
            self.close()
            raise StopIteration
        before, self._known = self._known, now
        return self._tell(before, now)

    def _await_change(self, notice: Notice) -> Membership | None:
        asked = time.monotonic()
        failing_since: float | None = None
        while True:
            left = float("inf") if self._timeout is None else asked + self._timeout - time.monotonic()
            try:
                now = self._read()
            except ViewError:
                failing_since = time.monotonic() if failing_since is None else failing_since
                grace = failing_since + GRACE - time.monotonic()
                if min(left, grace) <= 0:
                    raise
                left = min(left, grace)
            else:
                failing_since = None
                if now.mark != self._known.mark:
                    return now
                if left <= 0:
                    return None
            notice.wait(left)

    def close(self) -> None:
        """End the watch and close its descriptor; what is forgotten is closed too."""
        notice, self._notice = self._notice, None
        if notice is not None and self._begun:
            notice.__exit__(None, None, None)

    def __del__(self) -> None:
        self.close()
