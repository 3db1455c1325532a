"""The interface of ``aiohttp.ClientSession``: requests and watches, with time-outs and lost connections."""

import asyncio
import json as json_module
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from typing import Any, Self

from tfcluster.local.store.messages import Answer, Request
from tfcluster.local.store.serving import read_request

from .interception import ConnectionLost, Interceptor
from .response import MemoryResponse, Stream, connection_error
from .server import MemoryKubernetes, Record


class MemorySession:
    """A client's session with a MemoryKubernetes; ``latency`` is the seconds of a message each way."""

    def __init__(
        self,
        kube: MemoryKubernetes,
        *,
        user: str = "operator",
        latency: float = 0.004,
        interceptor: Interceptor | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._kube = kube
        self._user = user
        self._latency = latency
        self._interceptor = interceptor
        self._responses: dict[MemoryResponse, None] = {}
        self.headers: dict[str, str] = dict(headers or {})
        self.closed = False

    def request(
        self,
        method: str,
        url: str,
        *,
        data: bytes | str | None = None,
        json: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Any = None,
    ) -> "Exchange":
        """Send a request; the result is awaited or used as an async context manager, as aiohttp's is."""
        if self.closed:
            raise RuntimeError("Session is closed")
        carried = {**self.headers, **(headers or {})}
        if json is not None:
            data = json_module.dumps(json)
            carried.setdefault("Content-Type", "application/json")
        body = data.encode() if isinstance(data, str) else data
        request = read_request(
            method,
            url,
            params={key: str(value) for key, value in (params or {}).items()},
            headers=carried,
            user=self._user,
            body=body,
        )
        return Exchange(lambda: self._exchange(request, timeout))

    def get(self, url: str, **arguments: Any) -> "Exchange":
        return self.request("GET", url, **arguments)

    async def close(self) -> None:
        self.closed = True
        for response in tuple(self._responses):
            response.close()

    def lose_connections(self) -> None:
        """Break every open watch; the client gets the error immediately."""
        for response in tuple(self._responses):
            response.break_off()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _exchange(self, request: Request, timeout: Any) -> MemoryResponse:  # noqa: ASYNC109 - see request
        total = getattr(timeout, "total", None)
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(total):
                answer = await self._ask(request)
        except ConnectionLost as lost:
            raise connection_error(str(lost) or "Connection lost") from lost
        if answer.watch is None:
            return MemoryResponse(request, answer, None, self._responses)
        stream = Stream(
            self._lines(request, answer),
            sock_read=getattr(timeout, "sock_read", None),
            ends_at=None if total is None else started + total,
            stop=answer.watch.stop,
        )
        return MemoryResponse(request, answer, stream, self._responses)

    async def _ask(self, request: Request) -> Answer:
        await asyncio.sleep(self._latency)
        answer: Answer | None = None
        recorded = 0
        try:
            if self._interceptor is not None:
                answer = await self._interceptor.before(request)
            if answer is None:
                answer = self._kube.serve(request)
            recorded = answer.status
        finally:
            self._record(request, recorded)
        if self._interceptor is not None:
            if answer.watch is None:
                answer = await self._interceptor.after(request, answer)
            else:
                await self._interceptor.opened(request)
        await asyncio.sleep(self._latency)
        return answer

    def _record(self, request: Request, status: int) -> None:
        self._kube.requests.append(
            Record(
                self._kube.wall(),
                request.user,
                request.verb,
                request.resource,
                request.subresource,
                request.namespace,
                request.name,
                status,
            )
        )

    async def _lines(self, request: Request, answer: Answer) -> AsyncIterator[bytes]:
        if answer.watch is None:
            return
        async for lines in answer.watch.batches():
            await asyncio.sleep(self._latency)
            if self._interceptor is None:
                yield b"".join(lines)
                continue
            for line in lines:
                async for one in self._disturbed(self._interceptor, request, line):
                    yield one

    @staticmethod
    async def _disturbed(interceptor: Interceptor, request: Request, line: bytes) -> AsyncIterator[bytes]:
        given: Any = interceptor.line(request, line)
        if isinstance(given, Awaitable):
            given = await given
        if isinstance(given, AsyncIterator):
            async for one in given:
                yield one
        else:
            for one in given:
                yield one


class Exchange:
    """A pending request: ``await`` returns the response, and ``async with`` closes it too."""

    __slots__ = ("_response", "_start")

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._response: MemoryResponse | None = None

    def __await__(self) -> Generator[Any, None, MemoryResponse]:
        response: Generator[Any, None, MemoryResponse] = self._start().__await__()
        return response

    async def __aenter__(self) -> MemoryResponse:
        self._response = await self
        return self._response

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            self._response.close()
