"""Requests to the API server, their answers, and the record of both."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfcluster.local.store.refusals import Refusal
from tfcluster.local.store.watching import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, parsed as the API server parses it.

    Args:
        method: the HTTP method.
        path: the path, without the query.
        params: the query.
        headers: the headers.
        user: the authenticated user.
        verb: get, list, watch, create, update, patch, delete or deletecollection; "" if the path is not a resource's.
        group: the API group, "" for the core.
        version: the version of the group.
        resource: the plural, "" for other paths (discovery).
        subresource: such as "status", or "".
        namespace: the namespace, or "".
        name: the object's name; for a create the name in the body, "" if it is to be generated.
        body: the body, parsed; None if it is empty.
    """

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    user: str
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    body: Any = None

    @property
    def manager(self) -> str:
        """Return the field manager of this request."""
        agent = self.headers.get("User-Agent", "") or self.user
        return self.params.get("fieldManager") or agent.split("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request.

    Args:
        status: the HTTP status.
        body: the body; of a watch it is empty.
        headers: the headers.
        watch: the open watch, where that was asked.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    watch: Watch | None = None

    @classmethod
    def of(cls, body: bytes | Mapping[str, Any], status: int = 200) -> "Answer":
        """Answer with an object."""
        encoded = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        return cls(status=status, body=encoded, headers={"Content-Type": "application/json"})

    @classmethod
    def refusing(cls, refusal: Refusal) -> "Answer":
        """Answer with a rejection."""
        body = refusal.as_bytes()
        headers = {"Content-Type": "application/json" if body.startswith(b"{") else "text/plain; charset=utf-8"}
        if refusal.retry_after is not None:
            headers["Retry-After"] = str(refusal.retry_after)
        return cls(status=refusal.status, body=body, headers=headers)

    def json(self) -> Any:
        """Return the body, parsed."""
        return json.loads(self.body)
