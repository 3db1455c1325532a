"""Additions to the official client: errors of kubeconfigs and of responses, with a next step."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING, Any, Final

import yaml

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
