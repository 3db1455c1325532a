"""Additions to the official client: errors of kubeconfigs and responses with a next step, and cutting connections."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Mapping
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import yaml
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from tfcluster.errors import ConflictError, NotFoundError, RefusedError, UnreachableError
from tfcluster_operator.declaration import naming

if TYPE_CHECKING:
    from kubernetes import client


def load_kubeconfig(configuration: client.Configuration, file: str | None, context: str | None) -> str:
    from kubernetes import config
    from kubernetes.config import kube_config

    # The official client logs the errors of a credential program, and continues without credentials.
    heard, logger = BufferingHandler(1000), logging.getLogger()
    heard.setLevel(logging.ERROR)
    own = threading.get_ident()
    heard.addFilter(lambda record: record.thread == own)
    logger.addHandler(heard)
    try:
        config.load_kube_config(config_file=file, context=context, client_configuration=configuration)
    finally:
        logger.removeHandler(heard)
    if heard.buffer and not (configuration.api_key or configuration.cert_file or configuration.username):
        hint = "Log in again, and check that the credential program that it names can be run."
        words = heard.buffer[-1].getMessage()
        raise UnreachableError(f"the kubeconfig does not give credentials: {words}", hint=hint)
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


#: The reason of a 404 for a whole kind, not for one object.
UNKNOWN_PATH: Final = "UnknownPath"


def error_of_response(status: int, body: bytes, *, server: str = "") -> RefusedError:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != "Status":
        words = body.decode("utf-8", "replace").strip().splitlines()
        document = {"message": words[0] if words else "no reason given"}
        if status == 404:
            document["message"] = f"{server or 'the server'} does not know this path: {document['message']}"
            document["reason"] = UNKNOWN_PATH
    return error_of_status({"code": status, **document})


def error_of_status(document: Mapping[str, Any]) -> RefusedError:
    status = int(document.get("code") or 500)
    reason = str(document.get("reason") or "")
    message = str(document.get("message") or reason or f"HTTP status {status}")
    details: Mapping[str, Any] = document.get("details") or {}
    if status == 404:
        return NotFoundError(message, status=status, reason=reason, hint=_missing(details))
    if status == 409:
        hint = "It was changed in the meantime: read it again and retry."
        if any(cause.get("reason") == "FieldManagerConflict" for cause in details.get("causes") or ()):
            hint = "Another field manager owns these fields. Remove them, or take them over with --force-conflicts."
        return ConflictError(message, status=status, reason=reason, hint=hint)
    hint = "Ask an administrator for the permission, or choose another namespace with -n." if status == 403 else ""
    if status == 401 or 'User "system:anonymous"' in message:
        hint = "The API server does not know you. Log in again, or choose another --context."
    return RefusedError(message, status=status, reason=reason, hint=hint)


def _missing(details: Mapping[str, Any]) -> str:
    if details.get("kind") == "namespaces":
        return f"Create it with `kubectl create namespace {details.get('name')}`, or choose another one with -n."
    if details.get("name"):
        return "List the TFClusters with `tfcluster status`, in all namespaces with -A."
    return (
        f"Is the operator installed? Its definition is missing: kubectl get crd {naming.PLURAL}.{naming.GROUP}. "
        "`tfcluster doctor` checks everything."
    )
