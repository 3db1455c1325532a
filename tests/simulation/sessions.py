"""Sessions for kopf: apply aiohttp's middlewares to the in-memory session.

This is the only part of the operator that the simulation replaces: a session that borrows the connections of another
one needs aiohttp's connector, which the in-memory session does not have.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from support.memory_kubernetes import MemorySession
from yarl import URL

from tfcluster_operator.kube import connection

Handler = Callable[[Any], Awaitable[Any]]
Middleware = Callable[[Any, Handler], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request as a middleware receives it."""

    method: str
    url: URL


class _Exchange:
    """A request that passes the middlewares: awaited, or used as an async context manager."""

    def __init__(self, start: Callable[[], Awaitable[Any]]) -> None:
        self._start = start
        self._response: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._start().__await__()

    async def __aenter__(self) -> Any:
        self._response = await self._start()
        return self._response

    async def __aexit__(self, *_: object) -> None:
        self._response.close()


class BorrowedSession:
    """A session on the connections of another one, whose requests pass middlewares, the outermost first."""

    def __init__(self, lender: MemorySession, *middlewares: Middleware) -> None:
        self._lender = lender
        self._middlewares = middlewares
        self.headers = lender.headers
        self.closed = False

    def request(self, method: str, url: Any, *, params: Any = None, **arguments: Any) -> _Exchange:
        if self.closed:
            raise RuntimeError("Session is closed")
        asked = _Asked(method.upper(), URL(str(url)).update_query(params or {}))

        async def send(_: Any) -> Any:
            return await self._lender.request(method, str(url), params=params, **arguments)

        handler: Handler = send
        for middleware in reversed(self._middlewares):
            handler = _passing(middleware, handler)
        return _Exchange(lambda: handler(asked))

    def get(self, url: Any, **arguments: Any) -> _Exchange:
        return self.request("GET", url, **arguments)

    async def close(self) -> None:
        """Do nothing: the connections belong to the lender."""
        self.closed = True


def _passing(middleware: Middleware, handler: Handler) -> Handler:
    return lambda asked: middleware(asked, handler)


def install() -> None:
    """Replace the borrowing of an in-memory session; real sessions are lent as before."""
    opened = connection.open_session

    def open_session(access: connection.Access, *middlewares: Any, lender: Any = None) -> Any:
        if isinstance(lender, MemorySession):
            return BorrowedSession(lender, *middlewares)
        return opened(access, *middlewares, lender=lender)

    connection.open_session = open_session
