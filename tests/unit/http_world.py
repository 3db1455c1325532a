"""An HTTP session whose server is the world of in_memory, with rejections that a test defines.

The operator's own client, executor and reconciler use it: only the network is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from unit.in_memory import InMemoryWorld, Object, RefusedError, merge_patch

from tfcluster_operator.declaration import naming
from tfcluster_operator.objects.kinds import KINDS

_KINDS: Mapping[str, str] = {resource.plural: kind for kind, resource in KINDS.items()}


@dataclass(frozen=True)
class Request:
    """One request as the server received it."""

    method: str
    plural: str
    name: str
    subresource: str = ""
    body: Any = None
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def brief(self) -> str:
        """Verb, kind and name, as "POST pods demo-worker-0"."""
        name = self.name or ((self.body or {}).get("metadata") or {}).get("name", "")
        return " ".join(filter(None, (self.method, self.plural, name, self.subresource)))


@dataclass(frozen=True)
class Refusal:
    """An error response; with ``cut`` the connection breaks with this error instead."""

    status: int = 403
    reason: str = "Forbidden"
    message: str = "exceeded quota"
    cut: Exception | None = None


class _Response:
    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self._body = json.dumps(body).encode()

    async def read(self) -> bytes:
        return self._body


class _Exchange:
    def __init__(self, answer: Callable[[], _Response]) -> None:
        self._answer = answer

    async def __aenter__(self) -> _Response:
        return self._answer()

    async def __aexit__(self, *_: object) -> None:
        return None


class HttpWorld:
    """The session of an API server with a world and TFClusters.

    Args:
        world: the children.
        refuse: returns the rejection of a request, or None.
    """

    def __init__(self, world: InMemoryWorld, refuse: Callable[[Request], Refusal | None] = lambda _: None) -> None:
        self.world = world
        self.refuse = refuse
        self.requests: list[Request] = []
        self.clusters: dict[str, Object] = {}

    def request(self, method: str, url: str, *, data: bytes | None, params: Any, **_: Any) -> _Exchange:
        """Respond as a session does, with a context manager."""
        parts = urlsplit(url).path.strip("/").split("/")
        plural, name, subresource = [*parts[parts.index("namespaces") + 2 :], "", ""][:3]
        body = None if data is None else json.loads(data)
        request = Request(method, plural, name, subresource, body, params or {})
        return _Exchange(lambda: self._answer(request))

    def writes(self, *plurals: str) -> list[str]:
        """Return the requests that write to these kinds, in order."""
        return [one.brief for one in self.requests if one.method != "GET" and one.plural in plurals]

    def _answer(self, request: Request) -> _Response:
        self.requests.append(request)
        if (refusal := self.refuse(request)) is not None:
            if refusal.cut is not None:
                raise refusal.cut
            return _status(refusal.status, refusal.reason, refusal.message)
        if request.plural == naming.PLURAL:
            return self._of_clusters(request)
        if request.plural == "events":
            return _Response(201, request.body)
        kind = _KINDS[request.plural]
        try:
            return self._of_children(kind, request)
        except RefusedError as refused:
            if request.method == "POST":
                return _status(409, "AlreadyExists", str(refused))
            exists = (kind, request.name) in self.world.objects
            return _status(409, "Conflict", str(refused)) if exists else _status(404, "NotFound", str(refused))

    def _of_children(self, kind: str, request: Request) -> _Response:
        match request.method:
            case "GET":
                name = request.params["fieldSelector"].removeprefix("metadata.name=")
                found = self.world.objects.get((kind, name))
                return _Response(200, _list([found] if found else [], self.world.version))
            case "POST":
                return _Response(201, self.world.create(kind, request.body))
            case "PATCH":
                change = {**request.body, "metadata": dict(request.body["metadata"])}
                self.world.edit(kind, request.name, change, uid=change["metadata"].pop("uid"))
                return _Response(200, self.world.objects[kind, request.name])
            case _:
                uid, force = request.body["preconditions"]["uid"], request.body.get("gracePeriodSeconds") == 0
                self.world.delete(kind, request.name, uid=uid, force=force)
                left = self.world.objects.get((kind, request.name))
                return _Response(200, left or {"kind": "Status", "status": "Success"})

    def _of_clusters(self, request: Request) -> _Response:
        if request.method == "GET":
            if not request.name:
                name = request.params["fieldSelector"].removeprefix("metadata.name=")
                return _Response(200, _list([self.clusters[name]] if name in self.clusters else [], self.world.version))
            found = self.clusters.get(request.name)
            return _Response(200, found) if found else _status(404, "NotFound", f"no {request.name}")
        known = self.clusters[request.name]
        if request.method == "DELETE":
            del self.clusters[request.name]
            return _Response(200, known)
        if request.body["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        self.world.version += 1
        version = {"resourceVersion": str(self.world.version)}
        written = merge_patch(known, {"metadata": version, "status": request.body["status"]})
        self.clusters[request.name] = written
        return _Response(200, written)


def _list(items: list[Object], version: int) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}, "items": items}


def _status(code: int, reason: str, message: str) -> _Response:
    return _Response(code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})
