"""The interface of ``aiohttp.ClientResponse``: status, headers, and a body that is read whole or streamed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from types import SimpleNamespace
from typing import Any, Self

from tfcluster.local.store.messages import Answer, Request

from .interception import ConnectionLost


def connection_error(why: str) -> Exception:
    import aiohttp

    return aiohttp.ClientConnectionError(why)


class Stream:
    """The lines of a watch as bytes, until it ends, breaks, is silent for ``sock_read`` seconds or is closed."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        sock_read: float | None,
        ends_at: float | None,
        stop: Callable[[], None],
    ) -> None:
        self._chunks = chunks
        self._sock_read = sock_read
        self._ends_at = ends_at
        self._stop = stop
        self._reader: asyncio.Task[Any] | None = None
        self._broken = ""

    def end(self, why: str) -> None:
        """Raise an error with the reason in the reader."""
        self._broken = self._broken or why
        self._stop()
        if self._reader is not None:
            self._reader.cancel()

    async def read(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self._next()) is not None:
                yield chunk
        finally:
            self._stop()

    async def _next(self) -> bytes | None:
        if self._broken:
            raise connection_error(self._broken)
        loop = asyncio.get_running_loop()
        limits = [] if self._sock_read is None else [loop.time() + self._sock_read]
        limits += [] if self._ends_at is None else [self._ends_at]
        self._reader = asyncio.current_task()
        try:
            async with asyncio.timeout_at(min(limits, default=None)):
                return await anext(self._chunks, None)
        except ConnectionLost as lost:
            raise connection_error(str(lost) or "Connection lost") from lost
        except asyncio.CancelledError:
            # end() cancels the read; the cancellation of the reader itself must be raised.
            if self._broken and self._reader is not None and self._reader.uncancel() == 0:
                raise connection_error(self._broken) from None
            raise
        finally:
            self._reader = None


class Content:
    """The body of a response as a stream."""

    def __init__(self, body: bytes, stream: Stream | None) -> None:
        self._body = body
        self._stream = stream

    async def iter_any(self) -> AsyncIterator[bytes]:
        if self._stream is None:
            if self._body:
                yield self._body
            return
        async for chunk in self._stream.read():
            yield chunk

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        async for chunk in self.iter_any():
            for start in range(0, len(chunk), size):
                yield chunk[start : start + size]

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.iter_any()])


class MemoryResponse:
    """The response to one request, in ``among`` while it is open."""

    def __init__(
        self, request: Request, answer: Answer, stream: Stream | None, among: dict["MemoryResponse", None]
    ) -> None:
        self._answer = answer
        self._stream = stream
        self._among = among
        self.status = answer.status
        self.headers: Mapping[str, str] = dict(answer.headers)
        self.method = request.method
        self.url = request.path
        self.content = Content(answer.body, stream)
        self.closed = False
        if stream is not None:
            among[self] = None

    @property
    def ok(self) -> bool:
        return self.status < 400

    async def read(self) -> bytes:
        return await self.content.read()

    async def text(self) -> str:
        return (await self.read()).decode()

    async def json(self) -> Any:
        """Return the body, parsed; raise ``aiohttp.ContentTypeError`` if it is not JSON."""
        if self.headers.get("Content-Type") != "application/json":
            import aiohttp

            raise aiohttp.ContentTypeError(self._request_info(), (), status=self.status, message="not JSON")
        return json.loads(await self.read())

    def raise_for_status(self) -> None:
        """Raise ``aiohttp.ClientResponseError`` if the server rejected the request."""
        if not self.ok:
            import aiohttp

            raise aiohttp.ClientResponseError(self._request_info(), (), status=self.status, message="refused")

    def _request_info(self) -> Any:
        return SimpleNamespace(url=self.url, real_url=self.url, method=self.method, headers={})

    def close(self) -> None:
        """Close the response; a reader gets a connection error."""
        self._end("Connection closed")

    def release(self) -> None:
        self.close()

    def break_off(self) -> None:
        self._end("Connection lost")

    def _end(self, why: str) -> None:
        self.closed = True
        self._among.pop(self, None)
        if self._stream is not None:
            self._stream.end(why)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
