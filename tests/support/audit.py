"""The API server's audit log: the user, the request, and the times of its receipt and its end."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from . import clock
from .objects import NAMESPACES, Objects
from .waiting import GUARD, eventually

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Request:
    user: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    received: datetime
    finished: datetime
    uri: str

    @property
    def is_write(self) -> bool:
        return self.verb in WRITE_VERBS

    @property
    def target(self) -> str:
        """The resource as in an RBAC rule ("pods", "tfclusters/status")."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        return f"{self.received:%H:%M:%S.%f} {self.verb} {self.target} {self.namespace}/{self.name} -> {self.code}"


class AuditLog:
    """A reader of the log that starts at a recorded position."""

    def __init__(self, path: Path, objects: Objects) -> None:
        self._path = path
        self._objects = objects

    def position(self) -> int:
        """Return the current end of the log, behind every finished request and every received write."""
        marker = f"audit-marker-{uuid.uuid4().hex}"
        start = self._path.stat().st_size
        self._objects.get(NAMESPACES, "", marker)
        eventually(
            lambda: marker.encode() in self._bytes_since(start), what="the audit log holds the request just made"
        )
        return self._path.stat().st_size

    def since(self, position: int, *, user: str = "", namespace: str | None = None) -> list[Request]:
        """Return the finished reads and the received writes after a position, once the writes are answered."""
        end = self.position()
        begun = self._writes_begun(position, end, user)
        answered = eventually(
            lambda: self._answered(position),
            lambda found: begun <= found.keys(),
            what="the answers to all writes are in the audit log",
        )
        requests = [
            request
            for audit_id, request in answered.items()
            if (audit_id in begun if request.is_write else not user or request.user == user)
            and (namespace is None or request.namespace == namespace)
        ]
        return sorted(requests, key=lambda request: request.received)

    def writes(self, position: int, *, user: str, namespace: str | None = None) -> list[Request]:
        return [request for request in self.since(position, user=user, namespace=namespace) if request.is_write]

    def await_quiet(
        self, user: str, *, namespace: str | None = None, seconds: float = 1.5, within: float = GUARD
    ) -> int:
        """Wait until a user has not written for a while: no delayed write is left."""
        position, since = self.position(), clock.monotonic()

        def quiet_for() -> float:
            nonlocal position, since
            if self.writes(position, user=user, namespace=namespace):
                position, since = self.position(), clock.monotonic()
            return clock.monotonic() - since

        what = f"{user} writes nothing for {seconds} s"
        eventually(quiet_for, lambda quiet: quiet >= seconds, what=what, within=within)
        return self.position()

    def _writes_begun(self, position: int, end: int, user: str) -> set[str]:
        """Return the audit IDs of the writes received between two positions."""
        return {
            event["auditID"]
            for event in _events(self._bytes_since(position)[: end - position], "RequestReceived")
            if not user or event["user"].get("username") == user
        }

    def _answered(self, position: int) -> dict[str, Request]:
        return {event["auditID"]: _request(event) for event in _events(self._bytes_since(position), "ResponseComplete")}

    def _bytes_since(self, position: int) -> bytes:
        with self._path.open("rb") as log:
            log.seek(position)
            return log.read()


def _events(data: bytes, stage: str) -> Iterator[dict[str, Any]]:
    mark = f'"stage":"{stage}"'.encode()
    for line in data.split(b"\n")[:-1]:  # the text after the last newline is an incomplete line
        if mark in line:
            yield json.loads(line)


def _request(event: dict[str, Any]) -> Request:
    reference = event.get("objectRef", {})
    return Request(
        user=event.get("user", {}).get("username", ""),
        verb=event["verb"],
        group=reference.get("apiGroup", ""),
        resource=reference.get("resource", ""),
        subresource=reference.get("subresource", ""),
        namespace=reference.get("namespace", ""),
        name=reference.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        received=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        finished=datetime.fromisoformat(event["stageTimestamp"]),
        uri=event["requestURI"],
    )
