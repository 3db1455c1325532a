"""Liveness and readiness: alive means that the watches hear the API server, not that the process exists."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from tfcluster_operator.kube import clock as clocks
from tfcluster_operator.kube.informer import Informer

#: Bookmarks come every minute; a process that heard nothing for this many seconds is started anew.
_DEAF: Final = 180.0


async def serve(port: int, informers: Sequence[Informer], ready: asyncio.Event) -> web.AppRunner:
    """Serve ``/healthz`` and ``/readyz``.

    Args:
        port: the TCP port, on every address; 0 serves nothing.
        informers: the watches that are asked.
        ready: set when the TFClusters can be listed, too.

    Returns:
        The running server, to be cleaned up at the end.
    """

    async def healthz(_: web.Request) -> web.Response:
        silence = max(clocks.SYSTEM.elapsed() - informer.heard_at for informer in informers)
        return web.Response(
            status=200 if silence < _DEAF else 503, text=f"last heard of the API server {silence:.0f} s ago\n"
        )

    async def readyz(_: web.Request) -> web.Response:
        lists = [ready, *(informer.synced for informer in informers)]
        synced = sum(one.is_set() for one in lists)
        return web.Response(
            status=200 if synced == len(lists) else 503, text=f"{synced} of {len(lists)} lists are in\n"
        )

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    application.router.add_get("/readyz", readyz)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    if port:
        await web.TCPSite(runner, port=port).start()
    return runner
