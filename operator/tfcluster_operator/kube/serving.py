"""A port that answers GET requests: for probes, for metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.Response]]


async def serve(port: int, answers: Mapping[str, Answer]) -> web.AppRunner:
    """Answer GET requests.

    Args:
        port: the TCP port, on every address; 0 serves nothing.
        answers: what gives the answer, by path.

    Returns:
        The running server, to be cleaned up at the end.
    """
    application = web.Application()
    for path, answer in answers.items():
        application.router.add_get(path, answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    if port:
        await web.TCPSite(runner, port=port).start()
    return runner
