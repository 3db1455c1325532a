"""Hooks between a client and the API server that can disturb both."""

from collections.abc import AsyncIterable, Iterable

from tfcluster.local.store.messages import Answer, Request


class ConnectionLost(Exception):  # noqa: N818 - the name says what happens to the client
    """The connection breaks: from ``before`` without the request, from ``after`` when the server has executed it."""


class Interceptor:
    """Disturb nothing; a subclass overrides the hooks that it needs."""

    async def before(self, request: Request) -> Answer | None:
        """Process a request before the server does; ConnectionLost: it never arrives."""

    async def after(self, request: Request, answer: Answer) -> Answer:
        """Process a response before the client does; a watch that opens calls ``opened`` instead."""
        del request
        return answer

    async def opened(self, request: Request) -> None:
        """Called when a watch opens; its first line follows when this returns."""

    async def line(self, request: Request, line: bytes) -> Iterable[bytes] | AsyncIterable[bytes]:
        """Process one line of a watch: the client gets the returned lines, which can come from an async generator."""
        del request
        return (line,)
