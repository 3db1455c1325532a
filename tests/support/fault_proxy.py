"""A plain-HTTP listener in front of the API server, through which an operator under test connects, and which lies.

It forwards everything, with the operator's own credentials, until a fault says otherwise.  A fault is data: which calls
it meets, how often, and what then happens.  It sees only the operator's requests, never the tests' own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp
import yaml
from aiohttp import web
from kubernetes import client, config
from multidict import CIMultiDict

from .waiting import GUARD

_HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding", "content-encoding"})

#: ``refuse`` answers an error; ``hang`` answers nothing while the fault lasts; ``commit-and-reset`` forwards the
#: request and loses the answer; ``call-before`` and ``call-after`` call the action instead of, or after, forwarding,
#: and lose the answer; ``call-later`` forwards as usual and calls the action ``delay`` seconds after the request came.
Then = Literal["refuse", "hang", "commit-and-reset", "call-before", "call-after", "call-later"]


@dataclass(frozen=True, slots=True)
class Call:
    """What a fault can tell of a request."""

    method: str
    resource: str
    subresource: str
    name: str
    watch: bool

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


@dataclass(slots=True)
class Fault:
    """What befalls the calls that match, from the ``skip``-th on, ``times`` times."""

    then: Then
    resource: str = ""
    method: str = ""
    name: str = ""
    watch: bool | None = None
    writes: bool = False
    times: int | None = None
    skip: int = 0
    status: int = 500
    retry_after: int | None = None
    action: Callable[[], object] | None = None
    delay: float = 0.0
    met: list[Call] = field(default_factory=list)
    _seen: int = 0
    lifted: asyncio.Event = field(default_factory=asyncio.Event)

    def meets(self, call: Call) -> bool:
        """Say whether this call is hit, and count it."""
        fits = (
            (not self.resource or self.resource == call.resource)
            and (not self.method or self.method == call.method)
            and (not self.name or self.name == call.name)
            and (self.watch is None or self.watch == call.watch)
            and (not self.writes or call.is_write)
        )
        if not fits or (self.times is not None and len(self.met) >= self.times):
            return False
        self._seen += 1
        if self._seen <= self.skip:
            return False
        self.met.append(call)
        return True


class FaultProxy:
    """The proxy, served by a thread of its own; ``posted`` keeps the path and body of each POST.

    Args:
        kubeconfig: whom to forward to, and with which credentials.
        directory: where the operator's kubeconfig is written.
    """

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._configuration = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=self._configuration)
        self._faults: list[Fault] = []
        self.posted: list[tuple[str, bytes]] = []
        self._streams: dict[asyncio.Task[object], tuple[Call, web.StreamResponse]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        port = self._run(self._open())
        self.kubeconfig = directory / "through-the-fault-proxy.yaml"
        self.kubeconfig.write_text(_kubeconfig(f"http://127.0.0.1:{port}"), encoding="utf-8")

    def close(self) -> None:
        """Stop serving."""
        self._run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def fault(self, fault: Fault) -> Iterator[Fault]:
        """Let a fault happen for the length of a ``with`` block.

        Yields:
            The fault, which counts the calls it has met.
        """
        self._run(self._install(fault))
        try:
            yield fault
        finally:
            self._run(self._lift(fault))

    def drop_watches(self, resource: str = "", *, farewell: bytes = b"") -> int:
        """Cut the open watch streams of a resource.

        Returns:
            How many streams there were.
        """
        return self._run(self._drop(resource, farewell=farewell))

    def expire_watches(self, resource: str = "") -> int:
        """End the open watch streams as the API server does when their resourceVersion has become too old.

        Returns:
            How many streams there were.
        """
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "Expired",
            "code": 410,
            "message": "too old resource version: 1 (2)",
        }
        return self.drop_watches(resource, farewell=json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")

    def open_watches(self) -> list[str]:
        """Name the resources that are watched now."""

        async def read() -> list[str]:
            return sorted(call.resource for call, _ in self._streams.values())

        return self._run(read())

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(GUARD)

    async def _open(self) -> int:
        context = ssl.create_default_context(cafile=self._configuration.ssl_ca_cert)
        if self._configuration.cert_file:
            context.load_cert_chain(self._configuration.cert_file, self._configuration.key_file)
        self._headers = {}
        if token := self._configuration.get_api_key_with_prefix("authorization"):
            self._headers["Authorization"] = token
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            read_bufsize=2**20,
        )
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", self._serve)
        # A killed operator must not leave streams behind that look like open watches.
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return self._runner.addresses[0][1]

    async def _shut(self) -> None:
        for task in self._streams:
            task.cancel()
        await self._runner.cleanup()
        await self._session.close()

    async def _install(self, fault: Fault) -> None:
        self._faults.append(fault)

    async def _lift(self, fault: Fault) -> None:
        self._faults.remove(fault)
        fault.lifted.set()

    async def _drop(self, resource: str, *, farewell: bytes) -> int:
        hit = [
            (task, answer)
            for task, (call, answer) in self._streams.items()
            if not resource or call.resource == resource
        ]
        for task, answer in hit:
            if farewell and answer.prepared:
                await answer.write(farewell)
                await answer.write_eof()
            task.cancel()
        return len(hit)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = _call(request, body)
        if call.method == "POST":
            self.posted.append((request.path, body))
        fault = next((fault for fault in self._faults if fault.meets(call)), None)
        if fault is None:
            return await self._forward(request, call, body)
        match fault.then:
            case "refuse":
                return _refusal(fault)
            case "hang":
                await fault.lifted.wait()
                raise _cut(request)
            case "commit-and-reset":
                await self._forward(request, call, body, answer=False)
                raise _cut(request)
            case "call-before":
                await asyncio.to_thread(fault.action)
                raise _cut(request)
            case "call-after":
                await self._forward(request, call, body, answer=False)
                await asyncio.to_thread(fault.action)
                raise _cut(request)
            case "call-later":
                self._loop.call_later(fault.delay, self._loop.run_in_executor, None, fault.action)
                return await self._forward(request, call, body)

    async def _forward(
        self, request: web.Request, call: Call, body: bytes, *, answer: bool = True
    ) -> web.StreamResponse:
        url = f"{self._configuration.host}{request.raw_path}"
        headers = CIMultiDict((k, v) for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP)
        headers.update(self._headers)
        async with self._session.request(request.method, url, headers=headers, data=body or None) as upstream:
            kept = {k: v for k, v in upstream.headers.items() if k.lower() not in _HOP_BY_HOP - {"content-encoding"}}
            if not answer:
                await upstream.read()
                return web.Response()
            if not call.watch:
                return web.Response(status=upstream.status, headers=kept, body=await upstream.read())
            stream = web.StreamResponse(status=upstream.status, headers=kept)
            await self._relay(request, call, stream, upstream.content.iter_any())
            return stream

    async def _relay(
        self, request: web.Request, call: Call, stream: web.StreamResponse, chunks: AsyncIterator[bytes]
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._streams[task] = (call, stream)
        try:
            await stream.prepare(request)
            async for chunk in chunks:
                await stream.write(chunk)
        except ConnectionError:
            pass  # the operator is gone; nobody is left to tell
        finally:
            del self._streams[task]


def _call(request: web.Request, body: bytes) -> Call:
    parts = [part for part in request.path.split("/") if part]
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    resource, name, subresource, *_ = [*parts, "", "", ""]
    if request.method == "POST" and not name:
        name = json.loads(body).get("metadata", {}).get("name", "")
    watch = request.query.get("watch", "") not in {"", "0", "false"}
    return Call(method=request.method, resource=resource, subresource=subresource, name=name, watch=watch)


def _refusal(fault: Fault) -> web.Response:
    reasons = {
        401: "Unauthorized",
        403: "Forbidden",
        409: "Conflict",
        429: "TooManyRequests",
        410: "Expired",
        500: "InternalError",
        503: "ServiceUnavailable",
    }
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": fault.status,
        "reason": reasons.get(fault.status, ""),
        "message": "the test asked for this refusal",
    }
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    return web.json_response(status, status=fault.status, headers=headers)


def _cut(request: web.Request) -> Exception:
    """Close the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return asyncio.CancelledError()


def _kubeconfig(server: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": server}}],
            "users": [{"name": "operator", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "operator"}}],
            "current-context": "proxy",
        }
    )
