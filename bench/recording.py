"""A plain-HTTP proxy in front of the API server, through which the operator connects once: it keeps each POST."""

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from aiohttp import web
from kubernetes import client, config
from multidict import CIMultiDict

_HOP_BY_HOP: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "content-encoding"}
)


class RecordingProxy:
    """The proxy, served by its own thread; ``posted`` keeps the path and body of each POST.

    Args:
        kubeconfig: the API server and the credentials for forwarding.
        directory: the folder for the operator's kubeconfig.
    """

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._configuration = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=self._configuration)
        self.posted: list[tuple[str, bytes]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.kubeconfig = directory / "through-the-proxy.yaml"
        server = f"http://127.0.0.1:{self._run(self._open())}"
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": server}}],
            "users": [{"name": "operator", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "operator"}}],
            "current-context": "proxy",
        }
        self.kubeconfig.write_text(yaml.safe_dump(text), encoding="utf-8")

    def close(self) -> None:
        """Stop serving."""
        self._run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _open(self) -> int:
        context = ssl.create_default_context(cafile=self._configuration.ssl_ca_cert)
        if self._configuration.cert_file:
            context.load_cert_chain(self._configuration.cert_file, self._configuration.key_file)
        self._headers = {}
        if token := self._configuration.get_api_key_with_prefix("authorization"):
            self._headers["Authorization"] = token
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            read_bufsize=2**20,
        )
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return int(self._runner.addresses[0][1])

    async def _shut(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.method == "POST":
            self.posted.append((request.path, body))
        headers = CIMultiDict((k, v) for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP)
        headers.update(self._headers)
        url = f"{self._configuration.host}{request.raw_path}"
        async with self._session.request(request.method, url, headers=headers, data=body or None) as upstream:
            kept = {k: v for k, v in upstream.headers.items() if k.lower() not in _HOP_BY_HOP - {"content-encoding"}}
            if "watch" not in request.query:
                return web.Response(status=upstream.status, headers=kept, body=await upstream.read())
            stream = web.StreamResponse(status=upstream.status, headers=kept)
            await stream.prepare(request)
            async for chunk in upstream.content.iter_any():
                await stream.write(chunk)
            return stream
