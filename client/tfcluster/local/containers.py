"""One container: its program, its readiness probe (pkg/kubelet/prober), and what the pod's status says of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp

from tfcluster.local.addresses import HOST
from tfcluster.local.logs import ContainerLog
from tfcluster.local.processes import Command, Process, StartError

Object = Mapping[str, Any]

_PERIOD: Final = 10.0
_TIMEOUT: Final = 1.0
_FAILURES: Final = 3


class Actions:
    """Carries out the actions of one container's probes."""

    def __init__(
        self, container: Object, port: Callable[[int], int], command: Callable[[Sequence[str]], Command]
    ) -> None:
        self._named = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
        self._port = port
        self._command = command

    async def attempt(self, action: Object, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                if "exec" in action:
                    return await self._execute(action["exec"].get("command") or ())
                if "httpGet" in action:
                    return await self._get(action["httpGet"])
                # A gRPC probe asks only whether the port accepts connections.
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
            # As the kubelet, which does not verify the server's certificate.
            session.get(url, ssl=False) as response,
        ):
            return 200 <= response.status < 400


async def judge(
    probe: Object, attempt: Callable[[Object, float], Awaitable[bool]], told: Callable[[bool], None]
) -> None:
    """Probe forever, and report each time that the probe's threshold is reached."""
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


#: The role of a container in its pod; a sidecar is an init container with restartPolicy Always.
Kind = Literal["init", "sidecar", "main"]

_NOT_STARTED: Final = 128


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that one run of a container's program needs."""

    command: Command
    log: ContainerLog
    actions: Actions
    message_file: Path


class Container:
    """A container and its state."""

    def __init__(self, spec: Object, kind: Kind, *, changed: Callable[[], None], timestamp: Callable[[], str]) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.kind = kind
        self._changed = changed
        self._timestamp = timestamp
        self._process: Process | None = None
        self._asked: list[int] = []
        self._began = ""
        self.state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
        self.ready = False
        self.started = asyncio.Event()
        self.code: int | None = None
        self.log: ContainerLog | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None and not self._process.ended

    def wait_for(self, reason: str, message: str = "") -> None:
        self._become({"waiting": {"reason": reason, **({"message": message} if message else {})}})

    def cannot_start(self, why: str) -> None:
        """End it, if it has not run, as the kubelet does if the container runtime cannot start a container."""
        if self._process is None:
            self._end(128, "StartError", why)

    async def run(self, prepared: Prepared) -> int:
        self.log = prepared.log
        self._began, self.code = self._timestamp(), None
        try:
            process = await Process.start(prepared.command, prepared.log.write)
        except StartError as error:
            prepared.log.close()
            return self._end(_NOT_STARTED, "StartError", f"failed to start the program: {error}")
        self._process = process
        for number in self._asked:  # in the meantime
            process.send(number)
        self._become({"running": {"startedAt": self._began}})
        watching = asyncio.create_task(self._watch(prepared.actions))
        try:
            code = await process.wait()
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            prepared.log.close()
        return self._end(code, "Completed" if code == 0 else "Error", self._message(code, prepared))

    def terminate(self) -> None:
        if self._process is None or self._process.ended:
            self._asked.append(signal.SIGTERM)
        else:
            self._process.send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill its program and all descendants immediately."""
        self._asked.append(signal.SIGKILL)
        if self._process is not None:
            self._process.send(signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        container_id = {"containerID": f"process://{self._process.pid}"} if self._process is not None else {}
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": "",
            **container_id,
            "state": self.state,
            "lastState": {},
            "restartCount": 0,
            "ready": self.ready,
            "started": self.runs,
        }

    async def _watch(self, actions: Actions) -> None:
        self.started.set()
        if (readiness := self.spec.get("readinessProbe")) is None:
            self._set_ready(ready=True)
        else:
            await judge(readiness, actions.attempt, lambda passed: self._set_ready(ready=passed))

    def _set_ready(self, *, ready: bool) -> None:
        if ready != self.ready:
            self.ready = ready
            self._changed()

    def _become(self, state: dict[str, Any]) -> None:
        if state != self.state:
            self.state = state
            self._changed()

    def _end(self, code: int, reason: str, message: str) -> int:
        self.ready, self.code = False, code
        ended = {"exitCode": code, "reason": reason, "startedAt": self._began, "finishedAt": self._timestamp()}
        self._become({"terminated": {**ended, **({"message": message} if message else {})}})
        return code

    def _message(self, code: int, prepared: Prepared) -> str:
        """Return the content of the program's message file, or the last lines of a failed program without one."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if text := prepared.message_file.read_text(encoding="utf-8")[-4096:]:
                return text
        fall_back = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        return prepared.log.tail() if code and fall_back else ""
