"""What the API server's refusals mean to a user, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tfcluster.errors import ConflictError, NotFoundError, RefusedError
from tfcluster_operator.declaration import naming

#: The reason of a 404 that is of no object: the kind itself is not there.
UNKNOWN_PATH: Final = "UnknownPath"


def of_response(status: int, body: bytes, *, server: str = "") -> RefusedError:
    """Make the exception for an answer that is no success."""
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
    return of_status({"code": status, **document})


def of_status(document: Mapping[str, Any]) -> RefusedError:
    """Make the exception for a Status object of Kubernetes."""
    status = int(document.get("code") or 500)
    reason = str(document.get("reason") or "")
    message = str(document.get("message") or reason or f"HTTP status {status}")
    details: Mapping[str, Any] = document.get("details") or {}
    if status == 404:
        return NotFoundError(message, status=status, reason=reason, hint=_missing(details))
    if status == 409:
        hint = "Somebody else changed it: look at it again."
        if any(cause.get("reason") == "FieldManagerConflict" for cause in details.get("causes") or ()):
            hint = "Somebody else set these fields. Leave them out, or take them over with --force-conflicts."
        return ConflictError(message, status=status, reason=reason, hint=hint)
    hints = {
        401: "The API server does not know you: log in again, or choose another --context.",
        403: "Ask an administrator for the right, or choose another namespace with -n.",
    }
    hint = hints.get(status, "")
    if status == 403 and 'User "system:anonymous"' in message:
        hint = "The API server does not know you: the kubeconfig gave no credentials. Log in again."
    return RefusedError(message, status=status, reason=reason, hint=hint)


def _missing(details: Mapping[str, Any]) -> str:
    if details.get("kind") == "namespaces":
        return f"Create it with `kubectl create namespace {details.get('name')}`, or choose another one with -n."
    if details.get("name"):
        return "List what is there with `tfcluster status`, in all namespaces with -A."
    return (
        f"Is the operator installed? Its definition is missing: kubectl get crd {naming.PLURAL}.{naming.GROUP}. "
        "`tfcluster doctor` looks at everything."
    )
