"""Rejections of the API server as exceptions with a next step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tfcluster.errors import ConflictError, NotFoundError, RefusedError
from tfcluster_operator.declaration import naming

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
    hints = {
        401: "The API server does not know you: log in again, or choose another --context.",
        403: "Ask an administrator for the permission, or choose another namespace with -n.",
    }
    hint = hints.get(status, "")
    if status == 403 and 'User "system:anonymous"' in message:
        hint = "The API server does not know you: the kubeconfig gave no credentials. Log in again."
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
