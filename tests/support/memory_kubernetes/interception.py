"""What stands between a client and the API server, and may disturb both."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable

from tfcluster.local.store.messages import Answer, Request


class ConnectionLost(Exception):  # noqa: N818 - the name says what happens to the client
    """The connection breaks: raised in ``before`` the server never saw the request, in ``after`` it carried it out."""


class Interceptor:
    """Disturbs nothing; a subclass overrides what it wants to disturb."""

    async def before(self, request: Request) -> Answer | None:
        """Look at a request before the server does.

        Raises:
            ConnectionLost: the request never arrives.
        """

    async def after(self, request: Request, answer: Answer) -> Answer:
        """Look at an answer before the client does; a watch that opens comes to ``opened`` instead.

        Raises:
            ConnectionLost: the answer never arrives.
        """
        del request
        return answer

    async def opened(self, request: Request) -> None:
        """Learn that a watch is open; its first line comes after this returns."""

    async def line(self, request: Request, line: bytes) -> Iterable[bytes] | AsyncIterable[bytes]:
        """Look at one line of a watch, which ends with a newline, before the client does.

        Returns:
            The lines that the client gets in its place; none drops it.  An override may also be an async generator.

        Raises:
            ConnectionLost: the watch breaks off.
        """
        del request
        return (line,)
