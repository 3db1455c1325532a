"""The API server in memory behind HTTP, on the loopback interface, for clients with the token.

Write access means running programs as this user, so every request needs the token.
"""

from __future__ import annotations

import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from tfcluster.local.store import Answer, Refusal, Request, Store
from tfcluster.local.store.serving import read_request

HOST: Final = "127.0.0.1"
_USER: Final = "local-user"
_LARGEST_BODY: Final = 3 * 2**20

#: Return the bytes of a container's log for a namespace, a pod and the request's query; raises ``Refusal``.
LogOf = Callable[[str, str, Mapping[str, str]], AsyncIterator[bytes]]


class ApiServer:
    """Serves a store over HTTP on 127.0.0.1."""

    def __init__(self, store: Store, token: str, log_of: LogOf | None = None) -> None:
        self._store = store
        self.token = token
        self._token = token.encode()
        self._log_of = log_of
        self._runner: web.AppRunner | None = None
        #: The URL without a path, when it runs.
        self.url = ""

    async def start(self, port: int = 0) -> None:
        application = web.Application(client_max_size=_LARGEST_BODY)
        application.router.add_route("*", "/{path:.*}", self._answer)
        # Without cancellation a watch would end at the next event instead of when its client disconnects.
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, port)
        await site.start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        # kubectl does not send a token over plain HTTP, so the path of the server's URL begins with it.
        _, first, *rest = str(http.rel_url).split("/", 2)
        inside = hmac.compare_digest(first.encode("utf-8", "replace"), self._token)
        given = http.headers.get("Authorization", "").encode("utf-8", "replace")
        if not (inside or hmac.compare_digest(given, b"Bearer " + self._token)):
            return _plain(Answer.refusing(Refusal(401, "Unauthorized", "Unauthorized")))
        request = read_request(
            http.method,
            f"/{''.join(rest)}" if inside else str(http.rel_url),
            params={},
            headers=http.headers,
            user=_USER,
            body=await http.read(),
        )
        if request.resource == "pods" and request.subresource == "log" and self._log_of is not None:
            return await self._log(http, request, self._log_of)
        answer = self._store.serve(request)
        if answer.watch is None:
            return _plain(answer)
        response = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
        return await _streamed(http, response, (b"".join(lines) async for lines in answer.watch.batches()))

    async def _log(self, http: web.Request, request: Request, log_of: LogOf) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        chunks = log_of(request.namespace, request.name, request.params)
        try:
            first = await anext(chunks, b"")
        except Refusal as refusal:
            return _plain(Answer.refusing(refusal))
        return await _streamed(http, response, chunks, first)


async def _streamed(
    http: web.Request, response: web.StreamResponse, chunks: AsyncIterator[bytes], first: bytes = b""
) -> web.StreamResponse:
    await response.prepare(http)
    with contextlib.suppress(ConnectionResetError):  # the client has disconnected
        await response.write(first)
        async for chunk in chunks:
            await response.write(chunk)
        await response.write_eof()
    return response


def _plain(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=dict(answer.headers))


def kubeconfig(url: str, token: str, namespace: str = "default") -> str:
    """Return the kubeconfig for an ApiServer, as JSON, which is valid YAML."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": f"{url}/{token}"}}],
        "users": [{"name": "local", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local", "namespace": namespace}}],
        "current-context": "local",
    }
    return json.dumps(document, indent=2) + "\n"
