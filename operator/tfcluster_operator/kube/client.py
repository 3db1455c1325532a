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
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec

from tfcluster_operator.kube import clock as clocks
from tfcluster_operator.kube import errors

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

#: For how many seconds a request is retried.
_READ_PATIENCE: Final = 20.0
_WRITE_PATIENCE: Final = 3.0
#: The status codes of an overloaded or disconnected server, which are retried.
_TRIED_AGAIN: Final = frozenset({429, 503, 504})
_REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=10)
#: The window shrinks by three tenths after a rejection, at most this often in seconds; holds; and then grows slowly.
_SHRINK: Final = 0.7
_SHRINK_AT_MOST_EVERY: Final = 0.1
_HOLD: Final = 0.5
_CLIMB: Final = 0.05
_FLOOR: Final = 2.0
#: More connections slow a client down.
_CEILING: Final = 32.0


class AdaptiveLimiter:
    """The number of concurrent requests: a window that grows with each answer, and shrinks when the server answers 429.

    Waiting requests are served in order, so no cluster starves; reports (status, events) wait while any request that
    builds a cluster waits.
    """

    def __init__(self, *, start: float = 8.0, elapsed: Callable[[], float] = clocks.SYSTEM.elapsed) -> None:
        self._elapsed = elapsed
        self._window = start
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
        if self._throttled_at == float("-inf"):
            self._window = min(_CEILING, self._window + 1.0)
        elif self._elapsed() - self._throttled_at > _HOLD:
            self._window = min(_CEILING, self._window + _CLIMB)

    def throttled(self) -> None:
        """Note that the server rejected a request because it had too many."""
        now = self._elapsed()
        if now - self._throttled_at > _SHRINK_AT_MOST_EVERY:
            self._window = max(_FLOOR, self._window * _SHRINK)
            self._throttled_at = now

    def _admit(self) -> None:
        while (queue := self._waiting or self._waiting_to_report) and self._under_way < int(self._window):
            turn = queue.popleft()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)


class Client:
    """Requests to one API server; ``fence`` raises NotLeadingError before a write if another replica might lead."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        server: str,
        limiter: AdaptiveLimiter,
        *,
        patience: float | None = None,
        fence: Callable[[], None] | None = None,
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self.clock = clock
        self._session = session
        self._server = server.rstrip("/")
        self._limiter = limiter
        self._patience = patience
        self._fence = fence

    @classmethod
    def once(cls, session: aiohttp.ClientSession, server: str) -> Client:
        """Return a client that sends each request once and without a limit, for callers with their own timing."""
        return cls(session, server, AdaptiveLimiter(), patience=0.0)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        urgent: bool = True,
        patience: float | None = None,
        within: float | None = None,
    ) -> bytes:
        """Send one request and return the body of its answer, or raise a KubeError.

        ``urgent`` is False for reports, which wait for requests that build clusters.  ``patience`` is for how many
        seconds it is retried, ``within`` in how many one answer must arrive; None for the usual time.
        """
        data = None if body is None else msgspec.json.encode(body)
        options: dict[str, Any] = {
            "data": data,
            "params": params,
            "headers": {"Accept": accept} | ({} if data is None else {"Content-Type": content_type}),
            "timeout": _REQUEST_TIMEOUT if within is None else aiohttp.ClientTimeout(total=within),
        }
        writes = method != "GET"
        usual = self._patience if self._patience is not None else _WRITE_PATIENCE if writes else _READ_PATIENCE
        give_up = self.clock.elapsed() + (usual if patience is None else patience)
        backoff = clocks.Backoff(0.2)
        while True:
            try:
                async with self._limiter.slot(urgent=urgent):
                    if writes and self._fence is not None:
                        self._fence()
                    async with self._session.request(method, self._server + path, **options) as response:
                        answer = await response.read()
                        status, retry_after = response.status, response.headers.get("Retry-After", "")
                errors.check_answer(status, answer)
            except (aiohttp.ClientError, TimeoutError, errors.UnreachableError) as error:
                trouble: errors.KubeError = errors.UnreachableError(f"{method} {path}: {type(error).__name__}: {error}")
                retry_after = ""
            else:
                if status < 400:
                    self._limiter.answered()
                    return answer
                trouble = errors.from_response(status, answer)
                if method == "POST" and isinstance(trouble, errors.ConflictError):
                    # A create does not have a version: the server had a conflict of its own, over a quota's count.
                    trouble = errors.ServerError(status=status, reason=trouble.reason, message=trouble.message)
                elif status == 429:
                    self._limiter.throttled()
                elif status < 500 or (writes and status not in _TRIED_AGAIN):
                    raise trouble
            wait = backoff.next(float(retry_after) if retry_after.isdigit() else 0.0)
            if self.clock.elapsed() + wait > give_up:
                raise trouble
            await asyncio.sleep(wait)

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
