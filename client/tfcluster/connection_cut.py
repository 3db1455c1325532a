"""Cuts connections from outside of the thread that waits on them."""

from __future__ import annotations

import contextlib
import socket
import threading
from weakref import WeakSet

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class Cut:
    """Knows the sockets of the connections that its pools make."""

    def __init__(self) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self._over = False

    def cut(self) -> None:
        """Cut all connections, and those that are made from now on."""
        with self._lock:
            self._over = True
            for one in self._sockets:
                self._end(one)

    def pools(self) -> dict[str, type[HTTPConnectionPool]]:
        """Give what urllib3's PoolManager takes as ``pool_classes_by_scheme``."""
        note = self._note

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                note(self.sock)

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                note(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        return {"http": PlainPool, "https": SecurePool}

    def _note(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.add(one)
            if self._over:
                self._end(one)

    def _end(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            # NB: an SSL socket's own shutdown() would take its state from under the thread that reads.
            socket.socket.shutdown(one, socket.SHUT_RDWR)
