"""A container: its program under a shim, its readiness probe (pkg/kubelet/prober), and its part of the pod's status.

The shim ends all descendants of the program, even if this process is killed; see :mod:`tfcluster.local.shim`.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp

from tfcluster.local.addresses import HOST
from tfcluster.local.logs import ContainerLog

_log = logging.getLogger(__name__)
_SHIM: Final = str(Path(__file__).with_name("shim.py"))
_CHUNK: Final = 65536
#: The exit code of a program whose real one is unknown, as after SIGKILL.
_UNKNOWN: Final = 137


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, its complete environment, and its working directory."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str


class StartError(Exception):
    """The program could not be started; the message says why, as container runtimes do."""


class Process:
    """A program that runs or has run."""

    def __init__(
        self,
        shim: asyncio.subprocess.Process,
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        pid: int,
        output: asyncio.Task[None],
    ) -> None:
        self._shim, self._output = shim, output
        self._reader, self._writer = stream
        self._ended: asyncio.Task[int] = asyncio.create_task(self._end())
        self.pid = pid

    @classmethod
    async def start(cls, command: Command, output: Callable[[bytes], None]) -> "Process":
        if not command.argv:
            raise StartError("it does not name a command, and an image's entry point cannot run locally (--entrypoint)")
        ours, theirs = socket.socketpair()
        with theirs:
            shim = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", _SHIM),
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env={},
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        reading = asyncio.create_task(_read(shim, output))
        try:
            asked = {"argv": list(command.argv), "env": dict(command.env), "cwd": command.cwd}
            writer.write(json.dumps(asked).encode() + b"\n")
            told = await _told(reader)
        except BaseException:
            # The shim kills everything when its socket closes.
            writer.close()
            await reading
            await shim.wait()
            raise
        if "started" not in told:
            await shim.wait()
            await reading
            writer.close()
            raise StartError(str(told.get("error") or "its shim died"))
        return cls(shim, (reader, writer), int(told["started"]), reading)

    @property
    def ended(self) -> bool:
        return self._ended.done()

    def send(self, number: int) -> None:
        """Send a signal to the program; SIGKILL is also sent to all descendants."""
        if not self._writer.is_closing():
            self._writer.write(f"{int(number)}\n".encode())

    async def wait(self) -> int:
        """Wait until it and all its descendants have ended."""
        return await asyncio.shield(self._ended)

    async def _end(self) -> int:
        told = await _told(self._reader)
        if "code" not in told:
            # The shim was killed; the kernel has killed the program, and its process group is left.
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        await self._shim.wait()
        await self._output
        self._writer.close()
        return int(told.get("code", _UNKNOWN))


async def _read(shim: asyncio.subprocess.Process, output: Callable[[bytes], None]) -> None:
    assert shim.stdout is not None  # noqa: S101 - it was asked for
    while chunk := await shim.stdout.read(_CHUNK):
        try:
            output(chunk)
        except Exception:  # noqa: BLE001 - whatever it is, the program goes on
            # Without a reader the program would block on its pipe.
            _log.exception("output of process %s is lost", shim.pid)


async def _told(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Read a report of the shim; empty if the shim has ended."""
    try:
        line = await reader.readline()
    except OSError:
        return {}
    told: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
    return told


Object = Mapping[str, Any]


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
    needed = {True: int(probe.get("successThreshold", 1)), False: int(probe.get("failureThreshold", 3))}
    last, run = True, 0
    await asyncio.sleep(float(probe.get("initialDelaySeconds", 0)))
    while True:
        passed = await attempt(probe, float(probe.get("timeoutSeconds", 1)))
        run = run + 1 if passed is last else 1
        last = passed
        if run >= needed[passed]:
            told(passed)
        await asyncio.sleep(float(probe.get("periodSeconds", 10)))


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
            self._end(_NOT_STARTED, "StartError", why)

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
