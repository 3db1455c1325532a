"""Addresses of tasks, and looking up their names without being held up by that.

The operating system's look-up cannot be interrupted, and lasts as long as a DNS server is silent.  So it runs in daemon
threads, so that not even the interpreter's end waits for them; their number is bounded, and all callers that ask for
a name share the answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from tfcluster_resolver.errors import AddressError

#: Look-ups at one time in this process; a thread each, for as long as there is something to look up.
_THREADS: Final = 64
#: A name without addresses is looked up again after this part of the time since the first such answer, at most
#: _LONGEST_PAUSE seconds: a pod can be pending for days, and the whole cluster uses one DNS.
_PATIENCE: Final = 0.125
_LONGEST_PAUSE: Final = 5.0
#: After this number of seconds without a look-up, that time starts at 0.
_FORGOTTEN: Final = 30.0
#: The number of descriptors if the limit is unknown.
_UNKNOWN_LIMIT: Final = 128

#: A family, and a socket address without its port.
Address = tuple[int, tuple[Any, ...]]


def host_and_port(address: str) -> tuple[str, int]:
    """Take an address apart, or raise AddressError."""
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536):
        raise AddressError(f"{address!r} is not an address of the form host:port, as TensorFlow wants it")
    if "/" in host:
        raise AddressError(f"{address!r} has a scheme or a path; TensorFlow's addresses are host:port alone")
    return host.removeprefix("[").removesuffix("]"), int(port)


def descriptors(most: int, *, part: int) -> int:
    """Return how many descriptors can be used together, so that the program keeps some."""
    try:
        import resource  # noqa: PLC0415 - Windows has no such module, and no such limit

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the names alone
    except (ImportError, OSError):
        return _UNKNOWN_LIMIT
    return most if limit == resource.RLIM_INFINITY else max(1, min(most, (limit - used) // part))


@dataclass(slots=True, eq=False)
class LookUp:
    """A name with its look-up; ``addresses`` is None until that ends, and empty if the name does not exist."""

    host: str
    addresses: tuple[Address, ...] | None = None
    #: How many still want to know.
    askers: int = 0


class _LookUps:
    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):  # the threads are missing in a forked child
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._unfinished: dict[str, LookUp] = {}
        self._queue: deque[LookUp] = deque()
        self._threads = 0
        #: The times of the first and the last look-up of each name without addresses.
        self._nowhere: dict[str, tuple[float, float]] = {}

    def begin(self, host: str) -> LookUp:
        """Begin to look a name up, or share in a look-up that is under way; hand it to :meth:`release` in any case."""
        with self._lock:
            first, last = self._nowhere.get(host, (0.0, 0.0))
            if time.monotonic() < last + min((last - first) * _PATIENCE, _LONGEST_PAUSE):
                return LookUp(host, (), 1)
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
        except RuntimeError:  # the process cannot start more threads: the next caller tries again
            self._threads -= 1

    def release(self, one: LookUp) -> None:
        """End an asker's interest; the look-up is left out if it has not begun and was the only one."""
        with self._lock:
            one.askers -= 1

    def _work(self) -> None:
        while (one := self._next()) is not None:
            addresses = _resolve(one.host)
            with self._lock:
                one.addresses = addresses
                del self._unfinished[one.host]
                now = time.monotonic()
                first, last = self._nowhere.pop(one.host, (now, now))
                if not addresses:
                    self._nowhere[one.host] = (first if now < last + _FORGOTTEN else now, now)

    def _next(self) -> LookUp | None:
        with self._lock:
            while self._queue:
                one = self._queue.popleft()
                if one.askers:
                    return one
                del self._unfinished[one.host]
            self._threads -= 1
            return None


look_ups: Final = _LookUps()


def addresses_of(host: str, timeout: float) -> list[str] | None:
    """Look a name up; None if that takes longer than ``timeout`` seconds."""
    one = look_ups.begin(host)
    until = time.monotonic() + timeout
    while one.addresses is None and time.monotonic() < until:
        time.sleep(0.01)
    look_ups.release(one)
    return None if one.addresses is None else sorted({address[0] for _, address in one.addresses})


def numeric(host: str) -> tuple[Address, ...]:
    """Read an IP address, without a look-up; empty for a name."""
    for family, rest in ((socket.AF_INET, ()), (socket.AF_INET6, (0, 0))):
        with contextlib.suppress(OSError, ValueError):
            return ((family, (socket.inet_ntop(family, socket.inet_pton(family, host)), *rest)),)
    return ()


def _resolve(host: str) -> tuple[Address, ...]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError, LookupError):  # no name; or Python cannot load the codec of names, without descriptors
        return ()
    # The port is the second part of the addresses of IPv4 and IPv6.
    return tuple({(family, (address[0], *address[2:])): None for family, _, _, _, address in found})
