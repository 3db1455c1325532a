"""Port-forwarding as a kubelet serves it by websocket: into a port of this machine that plays a pod's."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable

from aiohttp import WSMsgType, web

_TIMEOUT = 20.0


class PlayedKubelet:
    """Serves websockets; each leads to the port that ``leads_to`` gives for a pod.

    Attributes:
        leads_to: the port on this machine that plays a port of a pod, by the pod's name.
        status: what every request is rejected with, if not 0.
        rejected: how many connections found no program.
        open: how many websockets are open.
    """

    def __init__(self) -> None:
        self.leads_to: dict[str, int] = {}
        self.status = 0
        self.refused = 0
        self.open = 0
        self.asked: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._sockets: set[web.WebSocketResponse] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.url = self._run(self._start)

    def _run(self, work: Callable):
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(_TIMEOUT)

    async def _start(self) -> str:
        application = web.Application()
        application.router.add_get("/{pod}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def stop(self) -> None:
        self._run(self._runner.cleanup)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT)
        self._loop.close()

    def cut(self) -> None:
        """Break all websockets, without a word."""

        async def break_all() -> None:
            for one in self._sockets:
                one._req.transport.abort()

        self._run(break_all)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.query["ports"])
        if self.status:
            return web.Response(status=self.status)
        tunnel = web.WebSocketResponse(protocols=["v4.channel.k8s.io"], max_msg_size=0)
        await tunnel.prepare(request)
        port = struct.pack("<H", int(request.query["ports"]))
        await tunnel.send_bytes(b"\x00" + port)
        await tunnel.send_bytes(b"\x01" + port)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.leads_to[request.match_info["pod"]])
        except (KeyError, OSError):
            self.refused += 1
            await tunnel.send_bytes(b"\x01failed to connect to localhost inside namespace: connection refused")
            await tunnel.close()
            return tunnel
        self.open += 1
        self._sockets.add(tunnel)
        answering = asyncio.create_task(self._answer(reader, tunnel))
        try:
            async for message in tunnel:
                if message.type is WSMsgType.BINARY and message.data[0] == 0:
                    writer.write(message.data[1:])
                    await writer.drain()
        finally:
            self.open -= 1
            self._sockets.discard(tunnel)
            answering.cancel()
            writer.close()
        return tunnel

    async def _answer(self, reader: asyncio.StreamReader, tunnel: web.WebSocketResponse) -> None:
        while chunk := await reader.read(32768):
            await tunnel.send_bytes(b"\x00" + chunk)
        await tunnel.close()
