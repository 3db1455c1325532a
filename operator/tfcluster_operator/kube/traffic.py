"""Counts every request to the API server when it is sent, in all sessions.

The election, the engine and kopf have their own sessions; a middleware sees all requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

import aiohttp
from yarl import URL

from tfcluster_operator.kube import clock as clocks
from tfcluster_operator.kube.metrics import CLUSTER_WIDE, NO_CODE, OPTIONAL, WATCHED, Metrics

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: The answers of a server that does not serve a kind, or forbids it.
_NOT_SERVED: Final = (403, 404)
#: The ends of a request without an answer.  aiohttp's own timeouts are cancellations here.
_NO_ANSWER: Final = (aiohttp.ClientError, OSError, TimeoutError, asyncio.CancelledError)


class Asked(NamedTuple):
    """The subject of a request: a Kubernetes verb, the resource or "", and the namespace."""

    verb: str
    resource: str
    namespace: str | None


def read_request(method: str, url: URL, prefix: str = "") -> Asked:
    """Parse the method and the URL of a request."""
    parts = url.path.removeprefix(prefix.rstrip("/")).strip("/").split("/")
    # The resource follows "api" and a version, or "apis", a group and a version.
    rest = parts[2 if parts[0] == "api" else 3 :]
    namespace = rest[1] if len(rest) > 2 and rest[0] == "namespaces" else None
    resource, *name = (rest if namespace is None else rest[2:]) or [""]
    if method != "GET":
        return Asked(_VERBS.get(method, "get"), resource, namespace)
    if url.query.get("watch") in {"true", "1"}:
        return Asked("watch", resource, namespace)
    return Asked("list" if resource and not name else "get", resource, namespace)


class Traffic:
    """A middleware that counts requests, and notes when each watch was last known to be alive."""

    def __init__(
        self,
        metrics: Metrics,
        scopes: Iterable[str | None],
        server: str,
        *,
        elapsed: Callable[[], float] = clocks.SYSTEM.elapsed,
    ) -> None:
        self._metrics = metrics
        self._elapsed = elapsed
        self._prefix = URL(server).path
        started = elapsed()
        self._watched = {(kind, None if kind in CLUSTER_WIDE else scope) for scope in scopes for kind in WATCHED}
        # Optional kinds might never be watched.
        self._heard = {of: started for of in self._watched if of[0] not in OPTIONAL}
        self._opened: set[tuple[str, str | None]] = set()

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        asked, began = read_request(request.method, request.url, self._prefix), self._elapsed()
        try:
            response = await handler(request)
        except _NO_ANSWER:
            self._count(asked, NO_CODE, began)
            raise
        self._count(asked, str(response.status), began)
        if asked.verb == "watch" and response.status < 400:
            self._follow(asked, response)
        elif asked.resource in OPTIONAL and response.status in _NOT_SERVED:
            # The server no longer serves it, or the permission was removed: a silent watch is not a problem.
            self._heard.pop((asked.resource, asked.namespace), None)
        return response

    def silences(self) -> Mapping[str, float]:
        """Return the seconds since the watches were last known to be alive, by kind, the longest of each."""
        now = self._elapsed()
        worst: dict[str, float] = {}
        for (kind, _), at in self._heard.items():
            worst[kind] = max(worst.get(kind, 0.0), now - at)
        return worst

    def _count(self, asked: Asked, code: str, began: float) -> None:
        self._metrics.api_requests.labels(asked.verb, code).inc()
        if asked.verb != "watch":
            self._metrics.api_duration.labels(asked.verb).observe(self._elapsed() - began)

    def _follow(self, asked: Asked, response: aiohttp.ClientResponse) -> None:
        key = asked.resource, asked.namespace
        if key not in self._watched:
            return

        def heard() -> None:
            self._heard[key] = self._elapsed()

        heard()
        if key in self._opened:
            self._metrics.watch_restarts.labels(asked.resource).inc()
        self._opened.add(key)
        response.content = cast("aiohttp.StreamReader", _Heard(response.content, heard))


class _Heard:
    """A stream that reports each piece that arrives.

    Only these two ways of reading are reported: our informers use one, kopf the other.
    """

    def __init__(self, content: aiohttp.StreamReader, heard: Callable[[], None]) -> None:
        self._content = content
        self._tell = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_any(self) -> AsyncIterator[bytes]:
        async for piece in self._content.iter_any():
            self._tell()
            yield piece

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        async for piece in self._content.iter_chunked(size):
            self._tell()
            yield piece
