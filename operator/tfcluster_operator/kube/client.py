"""The interface to the API server: one request method, errors by name, and the clock and back-off of its callers.

Requests are retried while the server does not answer, is overloaded (429, 503, 504), reports a conflict on a create
(409) or, for reads only, fails in any way; the back-off grows and is jittered, the time is bounded.  A write that fails
with 500 is not retried here: a failing webhook stays so for longer than a reconcile should wait.  Callers get an
answer, a rejection by name, or UnreachableError.
"""

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

#: For how many seconds a request is retried.
_READ_PATIENCE: Final = 20.0
_WRITE_PATIENCE: Final = 3.0
#: The status codes of an overloaded or disconnected server, which are retried.
_TRIED_AGAIN: Final = frozenset({429, 503, 504})
_REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=10)
#: The most concurrent requests: more connections slow a client down.
_AT_ONCE: Final = 32


#: For about this long after an outage of the API server, what was read from it can be outdated.
_LONGEST_DELAY: Final = 3.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Two readings that advance together: seconds since the epoch, and since a moment before the start."""

    wall: Callable[[], float]
    elapsed: Callable[[], float]


def steady(wall: Callable[[], float], elapsed: Callable[[], float]) -> Clock:
    """Return a clock that reads ``wall`` once, now, and then advances as ``elapsed`` does."""
    behind = wall() - elapsed()
    return Clock(wall=lambda: behind + elapsed(), elapsed=elapsed)


class Backoff:
    """Delays, in seconds, that double up to the longest, with jitter."""

    def __init__(self, first: float, *, longest: float = _LONGEST_DELAY) -> None:
        self._first = self._pause = first
        self._longest = longest

    def next(self, at_least: float = 0.0) -> float:
        """Return the next delay."""
        pause, self._pause = max(self._pause, at_least), min(self._longest, self._pause * 2)
        return pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, no secret

    def reset(self) -> None:
        """Start with the first delay again."""
        self._pause = self._first


async def is_set(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most for some seconds; return whether it is set."""
    # Not wait_for(): on Python 3.11 it loses a cancellation that arrives together with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _since_boot() -> float:
    # CLOCK_MONOTONIC stops while a machine sleeps, but a Lease that others can take expires.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


SYSTEM_CLOCK: Final = steady(time.time, _since_boot)


#: Quoted text in a server's message, which can contain submitted values.
_QUOTED: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'[^']*'(?!\w)|`[^`]*`")
_LONGEST_LINE: Final = 300


class KubeError(Exception):
    """A request to the API server failed."""


class UnreachableError(KubeError):
    """The API server gave no useful answer for as long as the request was tried."""


class HistoryLostError(KubeError):
    """etcd was restored, and what was read before is no longer valid: the process should end and start again."""


class NotLeadingError(KubeError):
    """A write was not sent, because another operator might lead by now."""


class ApiError(KubeError):
    """The API server rejected a request: ``status`` is HTTP's, ``reason`` and ``message`` are the server's message."""

    def __init__(self, *, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFoundError(ApiError):
    """404: the object does not exist."""


class AlreadyExistsError(ApiError):
    """409: an object of this name exists."""


class ConflictError(ApiError):
    """409: the object is not the one (UID), or not in the version, that the request was created for."""


class GoneError(ApiError):
    """410: the version to watch from is no longer kept; list again."""


class ServerError(ApiError):
    """5xx or 429 for as long as a request is tried: a webhook is down, or the server is overloaded."""


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


def check_answer(status: int, answer: bytes) -> None:
    """Check that a successful answer is from the API server, and not from a proxy in between."""
    if status < 400 and not answer.startswith(b"{"):
        raise UnreachableError(f"the answer is not JSON: {answer[:100].decode(errors='replace')}")


def from_response(status: int, body: bytes) -> ApiError:
    """Build the error of a rejection."""
    try:
        told = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        told = _Status(message=body[:200].decode(errors="replace"))
    conflict = AlreadyExistsError if told.reason == "AlreadyExists" else ConflictError
    kinds: dict[int, type[ApiError]] = {404: NotFoundError, 409: conflict, 410: GoneError, 429: ServerError}
    kind = kinds.get(status, ServerError if status >= 500 else ApiError)
    return kind(status=status, reason=told.reason, message=told.message)


def masked(words: str) -> str:
    """Shorten a server's message for the log and mask quoted text: it might be a value of a template."""
    line = " ".join(_QUOTED.sub('"…"', words).split())
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: Reports (status, events) wait for all other requests.
        self._waiting_to_report: deque[asyncio.Future[None]] = deque()
        self._free = _AT_ONCE
        #: Set while no write is in flight.
        self.no_writes = asyncio.Event()
        self.no_writes.set()
        self._writes = 0
        self._session = session
        self._server = server.rstrip("/")
        self._patience = patience
        self._fence = fence

    @classmethod
    def once(cls, session: aiohttp.ClientSession, server: str) -> "Client":
        """Return a client that sends each request once, for callers with their own timing."""
        return cls(session, server, patience=0.0)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for others to end."""
        return len(self._waiting) + len(self._waiting_to_report)

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
        """Send a request and return the answer; ``patience`` bounds its retries, ``within`` one try, in seconds."""
        writes = method != "GET"
        options: dict[str, Any] = {
            "data": None if body is None else msgspec.json.encode(body),
            "params": params,
            "headers": headers_of(method),
            "timeout": _REQUEST_TIMEOUT if within is None else aiohttp.ClientTimeout(total=within),
        }
        usual = self._patience if self._patience is not None else _WRITE_PATIENCE if writes else _READ_PATIENCE
        give_up = self.clock.elapsed() + (usual if patience is None else patience)
        backoff = Backoff(0.2)
        while True:
            try:
                async with (
                    self._place(urgent=urgent),
                    self._write() if writes else nullcontext(),
                    self._session.request(method, self._server + path, **options) as response,
                ):
                    answer = await response.read()
                    status, retry_after = response.status, response.headers.get("Retry-After", "")
                check_answer(status, answer)
            except (aiohttp.ClientError, TimeoutError, UnreachableError) as error:
                trouble: KubeError = UnreachableError(f"{method} {path}: {type(error).__name__}: {error}")
                retry_after = ""
            else:
                if status < 400:
                    return answer
                trouble = from_response(status, answer)
                if method == "POST" and isinstance(trouble, ConflictError):
                    # A create does not have a version: the server had a conflict of its own, over a quota's count.
                    trouble = ServerError(status=status, reason=trouble.reason, message=trouble.message)
                elif status not in _TRIED_AGAIN and (writes or status < 500):
                    raise trouble
            wait = backoff.next(float(retry_after) if retry_after.isdigit() else 0.0)
            if self.clock.elapsed() + wait > give_up:
                raise trouble
            await asyncio.sleep(wait)

    @asynccontextmanager
    async def _place(self, *, urgent: bool) -> AsyncIterator[None]:
        """Hold one place for a request, in order, so that no cluster starves."""
        if self._free:
            self._free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            (self._waiting if urgent else self._waiting_to_report).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while queue := self._waiting or self._waiting_to_report:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

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
                    raise from_response(response.status, await response.read())
                # Not readline(): aiohttp limits the length of a line, and a ConfigMap's event can be longer.
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnreachableError(f"watch {path}: {type(error).__name__}: {error}") from error
