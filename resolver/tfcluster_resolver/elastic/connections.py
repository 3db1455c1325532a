"""Limits for TensorFlow's connections that gRPC does not set, through this process's sockets.

An attempt to connect can take two seconds: gRPC gives it twenty.  A peer that acknowledges nothing for ten seconds is
lost: gRPC would wait for its answer forever.  And connections to a task that is known to be lost are closed, so that
callers that wait for its answer continue.

It reads ``/proc`` and so works on Linux; on other systems it does not find sockets and does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

#: An IP address and a port.
Peer = tuple[str, int]

#: Seconds for an attempt to connect, until a silent peer counts as lost, and between two looks.
_CONNECTING: Final = 2.0
_SILENT: Final = 10.0
_EVERY: Final = 0.25

_ESTABLISHED: Final = "01"
_SYN_SENT: Final = "02"
_TCP_SYN_SENT: Final = 2
_IPV4_BYTES: Final = 4


class Sockets:
    """This process's connections to the tasks of a cluster."""

    def __init__(self) -> None:
        self._peers: set[Peer] = set()
        self._cut: list[frozenset[Peer]] = []
        self._since: dict[str, float] = {}
        self._kept: set[str] = set()
        self._lock = threading.Lock()
        self._watchers = 0
        self._watching = False

    def meet(self, peers: Iterable[Peer]) -> None:
        """Add peers; connections to others, and attempts to connect to them, are left alone."""
        with self._lock:
            self._peers.update(peers)

    @contextlib.contextmanager
    def cut_off(self, peers: Collection[Peer]) -> Iterator[None]:
        """Close every connection to these peers and, while they are watched, each new one until the block ends."""
        gone = frozenset(peers)
        with self._lock:
            self._cut.append(gone)
        try:
            if gone:
                self._look()
            yield
        finally:
            with self._lock:
                self._cut.remove(gone)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look after the connections until the block ends, in a thread of its own."""
        with self._lock:
            self._watchers += 1
            # The thread of an earlier block can have missed that block's end; then it continues.
            if not self._watching:
                with contextlib.suppress(RuntimeError):  # no thread can be started: the next block tries again
                    threading.Thread(target=self._watch, name="tfcluster-connections", daemon=True).start()
                    self._watching = True
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1

    def _watch(self) -> None:
        while True:
            with self._lock:
                if not self._watchers:
                    self._watching = False
                    return
            with contextlib.suppress(OSError):  # no descriptor is left
                self._look()
            time.sleep(_EVERY)

    def _look(self) -> None:
        with self._lock:
            there = [one for one in _sockets() if one[2] in self._peers]
            now = time.monotonic()
            trying = {inode for inode, state, _ in there if state == _SYN_SENT}
            self._since = {inode: self._since.get(inode, now) for inode in trying}
            _own({inode for inode in trying if now - self._since[inode] >= _CONNECTING}, _give_up)
            cut = frozenset[Peer]().union(*self._cut)
            _own({inode for inode, _, peer in there if peer in cut}, _close)
            up = {inode for inode, state, _ in there if state == _ESTABLISHED}
            _own(up - self._kept, _keep_alive)
            self._kept = up


def _sockets() -> Iterator[tuple[str, str, Peer]]:
    """Yield inode, state and peer of the TCP sockets in this network namespace that are connected or try to be."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            part = line.split()
            if part[3] in {_ESTABLISHED, _SYN_SENT}:
                ip, _, port = part[2].rpartition(":")
                yield part[9], part[3], (_ip(ip), int(port, 16))


def _ip(hexadecimal: str) -> str:
    raw = b"".join(struct.pack("=I", int(hexadecimal[at : at + 8], 16)) for at in range(0, len(hexadecimal), 8))
    if raw.startswith(b"\0" * 10 + b"\xff\xff"):  # an IPv4 peer of an IPv6 socket
        raw = raw[-_IPV4_BYTES:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == _IPV4_BYTES else socket.AF_INET6, raw)


def _own(inodes: Collection[str], act: Callable[[socket.socket], object]) -> None:
    """Do something to those of the sockets that are this process's."""
    if not inodes:
        return
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError, ValueError):
            target = str(link.readlink())
            if not target.startswith("socket:[") or target[8:-1] not in inodes:
                continue
            # The copy is the same socket, whatever becomes of the number.
            with socket.socket(fileno=os.dup(int(link.name))) as copy:
                if str(link.with_name(str(copy.fileno())).readlink()) == target:
                    act(copy)


def _give_up(one: socket.socket) -> None:
    if one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_SYN_SENT:
        _close(one)


def _close(one: socket.socket) -> None:
    one.shutdown(socket.SHUT_RDWR)


def _keep_alive(one: socket.socket) -> None:
    pause = max(1, int(_SILENT / 4))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_SILENT * 1000))
