"""The operator's HTTP endpoints: /healthz and /readyz for the kubelet, /metrics for Prometheus.

/healthz covers this process only: a restart does not help if the API server is unreachable.  It would still be
unreachable, and the caches would be lost.  /readyz reports the state of the watches, and whether the operator leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from aiohttp import web

from tfcluster_operator.kube.informer import Source
from tfcluster_operator.kube.metrics import Metrics


async def serve_probes(
    port: int,
    clusters: Sequence[Source],
    children: Sequence[Source],
    standing: Callable[[], str],
    parts: Sequence[asyncio.Task[None]],
) -> web.AppRunner:
    """Serve ``/healthz`` and ``/readyz`` on a port, 0 for none; ``standing`` says whether this operator leads."""

    async def healthz(_: web.Request) -> web.Response:
        if ended := [part.get_name() for part in parts if part.done()]:
            return web.Response(status=503, text=f"ended: {', '.join(ended)}\n")
        return web.Response(text="every part runs\n")

    async def readyz(_: web.Request) -> web.Response:
        lines, ready = [standing()], any(source.synced.is_set() for source in clusters)
        if not ready:
            lines.append("the kind TFCluster was not seen yet")
        for source in (*clusters, *children):
            # A namespace that is deleted or forbidden must not block the others.
            if source.refused:
                lines.append(f"{source.what}: refused: {source.refused}")
            elif not source.synced.is_set():
                ready = False
                lines.append(f"{source.what}: the list is not in")
        return web.Response(status=200 if ready else 503, text="\n".join([*lines, ""]))

    return await _serve(port, {"/healthz": healthz, "/readyz": readyz})


async def serve_metrics(port: int, metrics: Metrics) -> web.AppRunner:
    """Serve ``/metrics`` on a port, 0 for none; the server is to be cleaned up at the end."""

    async def answer(request: web.Request) -> web.Response:
        # Prometheus sends the formats that it accepts in one header or in several.
        text, content_type = metrics.exposition(",".join(request.headers.getall("Accept", ())))
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    return await _serve(port, {"/metrics": answer})


async def _serve(port: int, answers: Mapping[str, Callable[[web.Request], Awaitable[web.Response]]]) -> web.AppRunner:
    application = web.Application()
    for path, answer in answers.items():
        application.router.add_get(path, answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    if port:
        await web.TCPSite(runner, port=port).start()
    return runner
