"""Probes of containers, as the kubelet makes them (pkg/kubelet/prober), on the ports of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp

from tfcluster.local.addresses import HOST
from tfcluster.local.processes import Command, Process, StartError

Object = Mapping[str, Any]

_PERIOD: Final = 10.0
_TIMEOUT: Final = 1.0
_FAILURES: Final = 3


class Actions:
    """Carries out what probes of one container ask for.

    Args:
        container: the container.
        port: gives the port on this machine of one of the pod's.
        command: makes a command that runs as the container does.
    """

    def __init__(
        self, container: Object, port: Callable[[int], int], command: Callable[[Sequence[str]], Command]
    ) -> None:
        self._named = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
        self._port = port
        self._command = command

    async def attempt(self, action: Object, seconds: float) -> bool:
        """Do it once.

        Returns:
            Whether it succeeded in time.
        """
        try:
            async with asyncio.timeout(seconds):
                if "exec" in action:
                    return await self._execute(action["exec"].get("command") or ())
                if "httpGet" in action:
                    return await self._get(action["httpGet"])
                # NB: a gRPC probe asks only whether the port accepts connections.
                target = action.get("tcpSocket") or action.get("grpc") or {}
                return await self._connect(target.get("host") or HOST, self._number(target.get("port", 0)))
        except (TimeoutError, OSError, StartError, aiohttp.ClientError):
            return False

    def _number(self, port: int | str) -> int:
        number = self._named.get(port, port)
        return self._port(int(number)) if str(number).isdecimal() else 0

    async def _execute(self, argv: Sequence[str]) -> bool:
        process = await Process.start(self._command(argv), lambda _: None)
        try:
            return await process.wait() == 0
        finally:
            process.send(signal.SIGKILL)
            await process.wait()

    @staticmethod
    async def _connect(host: str, port: int) -> bool:
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    async def _get(self, asked: Object) -> bool:
        scheme, host = asked.get("scheme", "HTTP").lower(), asked.get("host") or HOST
        url = f"{scheme}://{host}:{self._number(asked['port'])}/{asked.get('path', '').removeprefix('/')}"
        headers = {one["name"]: one["value"] for one in asked.get("httpHeaders") or ()}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            # NB: as the kubelet, which does not check who answers.
            session.get(url, ssl=False) as response,
        ):
            return 200 <= response.status < 400


async def judge(
    probe: Object, attempt: Callable[[Object, float], Awaitable[bool]], told: Callable[[bool], None]
) -> None:
    """Probe for ever, and tell each time that the probe's threshold is reached."""
    needed = {True: int(probe.get("successThreshold", 1)), False: int(probe.get("failureThreshold", _FAILURES))}
    last, run = True, 0
    await asyncio.sleep(float(probe.get("initialDelaySeconds", 0)))
    while True:
        passed = await attempt(probe, float(probe.get("timeoutSeconds", _TIMEOUT)))
        run = run + 1 if passed is last else 1
        last = passed
        if run >= needed[passed]:
            told(passed)
        await asyncio.sleep(float(probe.get("periodSeconds", _PERIOD)))
