"""Additions to the official client: the errors of a kubeconfig, and cutting connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import yaml
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

if TYPE_CHECKING:
    from kubernetes import client


def load_kubeconfig(configuration: client.Configuration, file: str | None, context: str | None) -> str:
    from kubernetes import config
    from kubernetes.config import kube_config

    config.load_kube_config(config_file=file, context=context, client_configuration=configuration)
    # The official client lists contexts only if the kubeconfig has a current one.
    read = kube_config.KubeConfigMerger(file or config.KUBE_CONFIG_DEFAULT_LOCATION).config
    chosen = kube_config.KubeConfigLoader(read, active_context=context).current_context
    return str(chosen["context"].get("namespace") or "")


def brief_of_kubeconfig(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: it is not YAML: {error.problem}"
    if isinstance(error, (TypeError, KeyError, AttributeError)):
        return "it is not built as a kubeconfig is"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class Cut:
    """Tracks the sockets of the connections that its pools open, and can cut them."""

    def __init__(self) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self._over = False

    def cut(self) -> None:
        """Cut all connections, and every connection that is opened afterwards."""
        with self._lock:
            self._over = True
            for one in self._sockets:
                self._end(one)

    def pools(self) -> dict[str, type[HTTPConnectionPool]]:
        """Return what urllib3's PoolManager takes as ``pool_classes_by_scheme``."""
        pools: tuple[type[HTTPConnectionPool], ...] = (HTTPConnectionPool, HTTPSConnectionPool)
        return {pool.scheme: self._noting(pool, pool.ConnectionCls) for pool in pools}

    def _noting(self, pool: type[HTTPConnectionPool], connection: Any) -> type[HTTPConnectionPool]:
        note = self._note

        class Noted(connection):  # type: ignore[misc]  # urllib3's class for the scheme
            def connect(self) -> None:
                super().connect()
                note(self.sock)

        return type("Noted", (pool,), {"ConnectionCls": Noted})

    def _note(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.add(one)
            if self._over:
                self._end(one)

    def _end(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            # shutdown() of an SSL socket itself would remove the state that the reading thread still uses.
            socket.socket.shutdown(one, socket.SHUT_RDWR)
