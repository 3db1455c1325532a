"""Counts every request to the API server when it is sent, in all sessions.

The election, the engine and kopf have their own sessions; a middleware sees all requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import aiohttp
from yarl import URL

from tfcluster_operator.kube import clock as clocks
from tfcluster_operator.kube.metrics import NO_CODE, Metrics

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: The ends of a request without an answer.  aiohttp's own timeouts are cancellations here.
_NO_ANSWER: Final = (aiohttp.ClientError, OSError, TimeoutError, asyncio.CancelledError)


def verb_of(method: str, url: URL, prefix: str = "") -> str:
    """Return the Kubernetes verb of a request; ``prefix`` is the path of the server's own URL."""
    if method != "GET":
        return _VERBS.get(method, "get")
    if url.query.get("watch") in {"true", "1"}:
        return "watch"
    parts = url.path.removeprefix(prefix.rstrip("/")).strip("/").split("/")
    # The resource follows "api" and a version, or "apis", a group and a version; it can be in a namespace.
    rest = parts[2 if parts[0] == "api" else 3 :]
    return "list" if len(rest) == 1 or (len(rest) == 3 and rest[0] == "namespaces") else "get"


def request_counter(
    metrics: Metrics, server: str, *, elapsed: Callable[[], float] = clocks.SYSTEM.elapsed
) -> aiohttp.ClientMiddlewareType:
    """Return a middleware that counts requests by verb and status code, and measures the time to the answer."""
    prefix = URL(server).path

    def note(verb: str, code: str, began: float) -> None:
        metrics.api_requests.labels(verb, code).inc()
        if verb != "watch":
            metrics.api_duration.labels(verb).observe(elapsed() - began)

    async def count(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        verb, began = verb_of(request.method, request.url, prefix), elapsed()
        try:
            response = await handler(request)
        except _NO_ANSWER:
            note(verb, NO_CODE, began)
            raise
        note(verb, str(response.status), began)
        return response

    return count
