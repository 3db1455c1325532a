"""Looking up names without being held up by them.

The operating system's look-up cannot be interrupted, and lasts as long as a DNS server is silent.  So it runs in daemon
threads, which nobody waits for, not even the interpreter's end.  It decides how many there are; whoever asks for a name
that is being looked up shares the answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from tfcluster_resolver.waiting.reachability import descriptors

#: Look-ups at one time in this process; a thread each, for as long as there is something to look up.
_THREADS: Final = 64

#: A family, and a socket address without its port.
Address = tuple[int, tuple[Any, ...]]


@dataclass(slots=True, eq=False)
class LookUp:
    """A name that is being looked up, or was.

    Attributes:
        host: the name.
        addresses: where it leads, None while that is not known yet; empty if it leads nowhere.
        askers: how many still want to know.
    """

    host: str
    addresses: tuple[Address, ...] | None = None
    askers: int = 0


class _LookUps:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unfinished: dict[str, LookUp] = {}
        self._queue: deque[LookUp] = deque()
        self._threads = 0

    def begin(self, host: str) -> LookUp:
        with self._lock:
            one = self._unfinished.get(host)
            if one is None:
                one = self._unfinished[host] = LookUp(host)
                self._queue.append(one)
            one.askers += 1
            if self._queue and self._threads < _THREADS and self._threads < descriptors(_THREADS, part=8):
                self._start_thread()
            return one

    def _start_thread(self) -> None:
        self._threads += 1
        try:
            threading.Thread(target=self._work, name="tfcluster-names", daemon=True).start()
        except RuntimeError:  # no more threads for this process: the next to ask tries again
            self._threads -= 1

    def release(self, one: LookUp) -> None:
        with self._lock:
            one.askers -= 1

    def _work(self) -> None:
        while (one := self._next()) is not None:
            addresses = _resolve(one.host)
            with self._lock:
                one.addresses = addresses
                del self._unfinished[one.host]

    def _next(self) -> LookUp | None:
        with self._lock:
            while self._queue:
                one = self._queue.popleft()
                if one.askers:
                    return one
                del self._unfinished[one.host]
            self._threads -= 1
            return None


_look_ups = _LookUps()


def begin(host: str) -> LookUp:
    """Begin to look a name up, or share in a look-up that is under way.

    Returns:
        The look-up.  Its ``addresses`` are there when it is done; hand it to :func:`release` in any case.
    """
    return _look_ups.begin(host)


def release(one: LookUp) -> None:
    """Tell that an asker is done with a look-up; it is left out if nobody else asks and it has not begun."""
    _look_ups.release(one)


def numeric(host: str) -> tuple[Address, ...]:
    """Read an IP address, which takes no look-up; empty for a name."""
    for family, rest in ((socket.AF_INET, ()), (socket.AF_INET6, (0, 0))):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return ((family, (host, *rest)),)
    return ()


def _resolve(host: str) -> tuple[Address, ...]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # a text that cannot be a name is a ValueError
        return ()
    # NB: the port is the second part of the addresses of IPv4 and IPv6.
    return tuple({(family, (address[0], *address[2:])): None for family, _, _, _, address in found})


def _forget() -> None:
    global _look_ups  # noqa: PLW0603 - a forked child has none of the threads
    _look_ups = _LookUps()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
