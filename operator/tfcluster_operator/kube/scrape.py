"""/metrics, on a port of its own."""

from __future__ import annotations

from aiohttp import web

from tfcluster_operator.kube import serving
from tfcluster_operator.kube.metrics import Metrics


async def serve(port: int, metrics: Metrics) -> web.AppRunner:
    """Serve ``/metrics``.

    Args:
        port: the TCP port, on every address; 0 serves nothing.
        metrics: what is told.

    Returns:
        The running server, to be cleaned up at the end.
    """

    async def answer(request: web.Request) -> web.Response:
        # NB: Prometheus names the formats that it understands in several headers or in one.
        text, content_type = metrics.exposition(",".join(request.headers.getall("Accept", ())))
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    return await serving.serve(port, {"/metrics": answer})
