"""The rejections of the API server, with the real server's status, reason and messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster.local.store.resources import Resource

#: The message for a write that was based on another version of the object.
MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a mistake of this program
    """The API server rejects a request.

    Args:
        status: the HTTP status.
        reason: the machine-readable reason, such as NotFound.
        message: the message.
        details: the Status object's ``details``.
        retry_after: the seconds of a Retry-After header, or None.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def as_object(self) -> dict[str, Any]:
        """Return the Status object that a client receives."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details or self.details is not None:
            body["details"] = details
        body["code"] = self.status
        return body

    def as_bytes(self) -> bytes:
        """Return the body of the response."""
        return json.dumps(self.as_object(), separators=(",", ":")).encode()


class NotServed(Refusal):
    """The path does not belong to a served kind.

    Args:
        built_in: whether the group is one of the server's own; for other groups the real server answers in plain text.
    """

    def __init__(self, *, built_in: bool = False) -> None:
        super().__init__(404, "NotFound", "the server could not find the requested resource", details={})
        self._built_in = built_in

    def as_bytes(self) -> bytes:
        """Return the body of the response."""
        return super().as_bytes() if self._built_in else b"404 page not found\n"


def quoted(value: Any) -> str:
    """Quote a value as Go's %q and JSON do."""
    return json.dumps(value)


def _details(resource: Resource, name: str, *, kind: str = "") -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return {**({"name": name} if name else {}), **group, "kind": kind or resource.plural}


def not_found(resource: Resource, name: str) -> Refusal:
    """Return the rejection for an object that does not exist."""
    message = f"{resource.group_resource} {quoted(name)} not found"
    return Refusal(404, "NotFound", message, details=_details(resource, name))


def already_exists(resource: Resource, name: str, *, leaving: bool) -> Refusal:
    """Return the rejection for a name that is taken, also by an object that is being deleted."""
    prefix = "object is being deleted: " if leaving else ""
    message = f"{prefix}{resource.group_resource} {quoted(name)} already exists"
    return Refusal(409, "AlreadyExists", message, details=_details(resource, name))


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> Refusal:
    """Return the rejection for a write whose UID or resourceVersion does not match."""
    message = f"Operation cannot be fulfilled on {resource.group_resource} {quoted(name)}: {why}"
    return Refusal(409, "Conflict", message, details=_details(resource, name))


def failed_precondition(resource: Resource, name: str, why: str) -> Refusal:
    """Return the rejection for a deletion whose UID or resourceVersion does not match."""
    # Here the real server uses the kind in its message, and elsewhere the plural.
    message = f"Operation cannot be fulfilled on {resource.group_kind} {quoted(name)}: {why}"
    return Refusal(409, "Conflict", message, details=_details(resource, name, kind=resource.kind))


def invalid(resource: Resource, name: str, errors: Sequence[tuple[str, str, str]]) -> Refusal:
    """Return the rejection for an invalid object."""
    words = list(dict.fromkeys(f"{field}: {message}" for field, _, message in errors))
    listed = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    causes = [{"reason": reason, "message": message, "field": field} for field, reason, message in errors]
    details = {**_details(resource, name, kind=resource.kind), "causes": causes}
    return Refusal(422, "Invalid", f"{resource.group_kind} {quoted(name)} is invalid: {listed}", details=details)


def unversioned(resource: Resource, name: str, words: str) -> Refusal:
    """Return the rejection for an update without the required resourceVersion."""
    # Here the real server uses the plural in its message, and elsewhere the kind.
    causes = [{"reason": "FieldValueInvalid", "message": words, "field": "metadata.resourceVersion"}]
    message = f"{resource.group_resource} {quoted(name)} is invalid: metadata.resourceVersion: {words}"
    return Refusal(422, "Invalid", message, details={**_details(resource, name), "causes": causes})


def forbidden(resource: Resource, name: str, why: str, *, causes: Sequence[Mapping[str, str]] = ()) -> Refusal:
    """Return the rejection by admission or authorization."""
    subject = f"{resource.group_resource} {quoted(name)}" if name else resource.group_resource
    details = {**_details(resource, name), **({"causes": [dict(one) for one in causes]} if causes else {})}
    return Refusal(403, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def expired(message: str) -> Refusal:
    """Return the rejection for a version that is no longer kept."""
    return Refusal(410, "Expired", message)


def too_large_version(wanted: int, current: int) -> Refusal:
    """Return the rejection for a version that is not reached yet."""
    message = f"Too large resource version: {wanted}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return Refusal(504, "Timeout", f"Timeout: {message}", details={"causes": causes}, retry_after=1)


def bad_request(message: str) -> Refusal:
    """Return the rejection for a malformed request."""
    return Refusal(400, "BadRequest", message)


def not_allowed() -> Refusal:
    """Return the rejection for a method that the path does not support."""
    return Refusal(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def internal_error(why: str) -> Refusal:
    """Return the rejection for an error of the server or of a webhook."""
    message = f"Internal error occurred: {why}"
    return Refusal(500, "InternalError", message, details={"causes": [{"message": why}]})
