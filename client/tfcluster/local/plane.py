"""The control plane of a local run: the store, the operator's engine on it, and HTTP for the other commands."""

import asyncio
import contextlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from tfcluster.local.addresses import HOST
from tfcluster.local.store import BUILT_IN, Answer, Change, Refusal, Request, Resource, Store, resource_of_definition
from tfcluster.local.store.serving import read_request
from tfcluster.manifest.validate import definition
from tfcluster_operator.declaration import naming
from tfcluster_operator.engine.assembly import Engine
from tfcluster_operator.kube.client import SYSTEM_CLOCK, Client, from_response, headers_of
from tfcluster_operator.resolver_sources import read_archive

_LOCAL_USER: Final = "local-user"
_LARGEST_BODY: Final = 3 * 2**20

#: The log of a container in pieces, for a namespace, a pod and the query of the request.
LogOf = Callable[[str, str, Mapping[str, str]], AsyncIterator[bytes]]


class ApiServer:
    """Serves a store over HTTP on 127.0.0.1."""

    def __init__(self, store: Store, log_of: LogOf) -> None:
        self._store, self._log_of = store, log_of
        self.token = secrets.token_urlsafe(32)
        application = web.Application(client_max_size=_LARGEST_BODY)
        application.router.add_route("*", "/{path:.*}", self._answer)
        # Without cancellation a watch would end at the next event instead of when its client disconnects.
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        #: The URL without a path, when it runs.
        self.url = ""

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0).start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        # kubectl does not send a token over plain HTTP, so the path of the server's URL begins with it.
        _, first, *rest = str(http.rel_url).split("/", 2)
        inside = hmac.compare_digest(first.encode("utf-8", "replace"), self.token.encode())
        given = http.headers.get("Authorization", "").encode("utf-8", "replace")
        if not (inside or hmac.compare_digest(given, f"Bearer {self.token}".encode())):
            return _plain(Answer.refusing(Refusal(401, "Unauthorized", "Unauthorized")))
        request = read_request(
            http.method,
            f"/{''.join(rest)}" if inside else str(http.rel_url),
            params={},
            headers=http.headers,
            user=_LOCAL_USER,
            body=await http.read(),
        )
        if request.resource == "pods" and request.subresource == "log":
            return await self._log(http, request)
        answer = self._store.serve(request)
        if answer.watch is None:
            return _plain(answer)
        response = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
        return await _streamed(http, response, (b"".join(lines) async for lines in answer.watch.batches()))

    async def _log(self, http: web.Request, request: Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        chunks = self._log_of(request.namespace, request.name, request.params)
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
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "clusters": [{"name": "local", "cluster": {"server": f"{url}/{token}"}}],
        "users": [{"name": "local", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local", "namespace": namespace}}],
    }
    return json.dumps(document, indent=2) + "\n"


_USER = "tfcluster-operator"


def served() -> Iterable[Resource]:
    """Return the kinds that a local run serves."""
    more = (
        Resource(plural="secrets", kind="Secret"),
        Resource(plural="persistentvolumeclaims", kind="PersistentVolumeClaim", status=True, short_names=("pvc",)),
    )
    return resource_of_definition(definition()), *BUILT_IN, *more


class StoreClient(Client):
    """Sends the engine's requests to the store in this process."""

    def __init__(self, store: Store) -> None:
        self.clock = SYSTEM_CLOCK
        self._store = store

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        **_: Any,
    ) -> bytes:
        await asyncio.sleep(0)  # a long reconcile lets the tasks' output through
        data = None if body is None else msgspec.json.encode(body)
        return self._ask(method, path, params, headers_of(method), data).body

    async def watch(self, path: str, *, params: Mapping[str, str], silence: float) -> AsyncIterator[bytes]:
        """Yield the events of a watch, one line of JSON each."""
        del silence
        answer = self._ask("GET", path, params, {}, None)
        if answer.watch is not None:
            async for lines in answer.watch.batches():
                for line in lines:
                    yield line

    def _ask(
        self, method: str, path: str, params: Mapping[str, str] | None, headers: Mapping[str, str], data: bytes | None
    ) -> Answer:
        request = read_request(method, path, params=params or {}, headers=headers, user=_USER, body=data)
        answer = self._store.serve(request)
        if answer.status >= 400:
            raise from_response(answer.status, answer.body)
        return answer


@asynccontextmanager
async def control_plane(store: Store, log_of: LogOf) -> AsyncIterator[tuple[ApiServer, Sequence[asyncio.Task[None]]]]:
    """Run the engine on a store, and serve the store with HTTP; return the server, and the tasks that must not end."""
    # A local run does not need NetworkPolicies: the tasks' processes are on one machine.
    engine = Engine(StoreClient(store), (), read_archive())
    loop = asyncio.get_running_loop()

    def note(change: Change) -> None:
        if change.resource == naming.PLURAL:
            loop.call_soon(engine.cluster_event, change.type, change.object)

    store.subscribers.append(note)
    leading = asyncio.Event()
    leading.set()
    server = ApiServer(store, log_of)
    await server.start()
    works = {"engine": engine.run(leading), "garbage collector": store.collect_garbage()}
    parts = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        yield server, parts
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
        store.subscribers.remove(note)
        await server.stop()
