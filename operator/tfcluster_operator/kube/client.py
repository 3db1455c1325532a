"""The interface to the API server: one session, one request method, errors by name.

Requests are retried while the server does not answer, is overloaded (429, 503, 504), reports a conflict on a create
(409) or, for reads only, fails in any way; the back-off grows and is jittered, the time is bounded.  A write that fails
with 500 is not retried here: a failing webhook stays so for longer than a reconcile should wait.  Callers get an
answer, a rejection by name, or UnreachableError.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

import aiohttp
import msgspec

from tfcluster_operator.kube import clock as clocks
from tfcluster_operator.kube import errors

#: For how many seconds a request is retried.
_READ_PATIENCE: Final = 20.0
_WRITE_PATIENCE: Final = 3.0
#: The status codes of an overloaded or disconnected server, which are retried.
_TRIED_AGAIN: Final = frozenset({429, 503, 504})
_REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=10)
#: The concurrent requests at the start, and the most: more connections slow a client down.
_START: Final = 8.0
_CEILING: Final = 32.0
#: The window grows by one with each answer until the first rejection; from then on slowly.  It shrinks by three tenths
#: after a rejection, and then holds for some seconds.
_SHRINK: Final = 0.7
_HOLD: Final = 0.25
_CLIMB: Final = 0.05
_FLOOR: Final = 2.0


class AdaptiveLimiter:
    """The number of concurrent requests: a window that shrinks when the server answers 429, and grows again.

    Waiting requests are served in order, so no cluster starves; reports (status, events) wait while any request that
    builds a cluster waits.
    """

    def __init__(self, elapsed: Callable[[], float], *, window: float = _START) -> None:
        self._elapsed = elapsed
        self._window = window
        self._climb = 1.0
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_to_report: deque[asyncio.Future[None]] = deque()
        self._throttled_at = float("-inf")

    @asynccontextmanager
    async def slot(self, *, urgent: bool = True) -> AsyncIterator[None]:
        """Hold one place in the window for one request."""
        if self._waiting or self._waiting_to_report or self._under_way >= int(self._window):
            turn = asyncio.get_running_loop().create_future()
            (self._waiting if urgent else self._waiting_to_report).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._under_way -= 1
                    self._admit()
                raise
        else:
            self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._admit()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting) + len(self._waiting_to_report)

    def answered(self) -> None:
        """Note that the server kept up with a request."""
        if self._elapsed() - self._throttled_at > _HOLD:
            self._window = min(_CEILING, self._window + self._climb)

    def throttled(self) -> None:
        """Note that the server rejected a request because it had too many."""
        if self._elapsed() - self._throttled_at > _HOLD:
            self._window = max(_FLOOR, self._window * _SHRINK)
            self._throttled_at, self._climb = self._elapsed(), _CLIMB

    def _admit(self) -> None:
        while (queue := self._waiting or self._waiting_to_report) and self._under_way < int(self._window):
            turn = queue.popleft()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)


def headers_of(method: str) -> dict[str, str]:
    """Return the headers of a request; every patch is a JSON merge patch."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return {"Accept": "application/json", **({} if method == "GET" else {"Content-Type": kind})}


class Client:
    """Requests to one API server; ``fence`` raises NotLeadingError before a write if another replica might lead."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        server: str,
        *,
        patience: float | None = None,
        fence: Callable[[], None] = lambda: None,
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self.clock = clock
        self.limiter = AdaptiveLimiter(clock.elapsed)
        #: Set while no write is in flight.
        self.no_writes = asyncio.Event()
        self.no_writes.set()
        self._writes = 0
        self._session = session
        self._server = server.rstrip("/")
        self._patience = patience
        self._fence = fence

    @classmethod
    def once(cls, session: aiohttp.ClientSession, server: str) -> Client:
        """Return a client that sends each request once, for callers with their own timing."""
        return cls(session, server, patience=0.0)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        urgent: bool = True,
        patience: float | None = None,
        within: float | None = None,
    ) -> bytes:
        """Send one request and return the body of its answer, or raise a KubeError.

        ``urgent`` is False for reports, which wait for requests that build clusters.  ``patience`` is for how many
        seconds it is retried, ``within`` in how many one answer must arrive; None for the usual time.
        """
        writes = method != "GET"
        options: dict[str, Any] = {
            "data": None if body is None else msgspec.json.encode(body),
            "params": params,
            "headers": headers_of(method),
            "timeout": _REQUEST_TIMEOUT if within is None else aiohttp.ClientTimeout(total=within),
        }
        usual = self._patience if self._patience is not None else _WRITE_PATIENCE if writes else _READ_PATIENCE
        give_up = self.clock.elapsed() + (usual if patience is None else patience)
        backoff = clocks.Backoff(0.2)
        while True:
            try:
                async with (
                    self.limiter.slot(urgent=urgent),
                    self._write() if writes else nullcontext(),
                    self._session.request(method, self._server + path, **options) as response,
                ):
                    answer = await response.read()
                    status, retry_after = response.status, response.headers.get("Retry-After", "")
                errors.check_answer(status, answer)
            except (aiohttp.ClientError, TimeoutError, errors.UnreachableError) as error:
                trouble: errors.KubeError = errors.UnreachableError(f"{method} {path}: {type(error).__name__}: {error}")
                retry_after = ""
            else:
                if status < 400:
                    self.limiter.answered()
                    return answer
                trouble = errors.from_response(status, answer)
                if method == "POST" and isinstance(trouble, errors.ConflictError):
                    # A create does not have a version: the server had a conflict of its own, over a quota's count.
                    trouble = errors.ServerError(status=status, reason=trouble.reason, message=trouble.message)
                elif status == 429:
                    self.limiter.throttled()
                elif status < 500 or (writes and status not in _TRIED_AGAIN):
                    raise trouble
            wait = backoff.next(float(retry_after) if retry_after.isdigit() else 0.0)
            if self.clock.elapsed() + wait > give_up:
                raise trouble
            await asyncio.sleep(wait)

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[None]:
        self._fence()
        self._writes += 1
        self.no_writes.clear()
        try:
            yield
        finally:
            self._writes -= 1
            if not self._writes:
                self.no_writes.set()

    async def watch(self, path: str, *, params: Mapping[str, str], silence: float) -> AsyncIterator[bytes]:
        """Yield the events of a watch, one line of JSON each; ``silence`` seconds without a byte end it."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        try:
            async with self._session.get(self._server + path, params=params, timeout=timeout) as response:
                if response.status >= 400:
                    raise errors.from_response(response.status, await response.read())
                # Not readline(): aiohttp limits the length of a line, and a ConfigMap's event can be longer.
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError) as error:
            raise errors.UnreachableError(f"watch {path}: {type(error).__name__}: {error}") from error
