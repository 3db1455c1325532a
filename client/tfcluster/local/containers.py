"""One container: its program, its probes, and what the pod's status says of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tfcluster.local.container_log import ContainerLog
from tfcluster.local.probes import Actions, judge
from tfcluster.local.processes import Command, Process, StartError

Object = Mapping[str, Any]
#: What an init container, a sidecar (an init container that is restarted always), and a container is in its pod's life.
Kind = Literal["init", "sidecar", "main"]

#: What container runtimes say of a program that they could not start.
_NOT_STARTED: Final = 128


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that one run of a container's program needs."""

    command: Command
    log: ContainerLog
    actions: Actions
    message_file: Path


class Container:
    """A container and what has become of it.

    Args:
        spec: the container, as the pod has it.
        kind: what it is in its pod's life.
        changed: is called when its status has changed.
        timestamp: spells the time as the API does.
        grace: the seconds that its program gets to end.
    """

    def __init__(
        self, spec: Object, kind: Kind, *, changed: Callable[[], None], timestamp: Callable[[], str], grace: float
    ) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.kind = kind
        self._changed = changed
        self._timestamp = timestamp
        self._grace = grace
        self._process: Process | None = None
        self._asked: list[int] = []
        self._began = ""
        self.state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
        self.last_state: dict[str, Any] = {}
        self.restarts = 0
        self.ready = False
        self.started = asyncio.Event()
        self.code: int | None = None
        self.log: ContainerLog | None = None
        self.previous_log: ContainerLog | None = None

    @property
    def runs(self) -> bool:
        """Whether its program runs."""
        return self._process is not None and not self._process.ended

    def wait_for(self, reason: str, message: str = "") -> None:
        """Say what it waits for."""
        self._become({"waiting": {"reason": reason, **({"message": message} if message else {})}})

    def cannot_start(self, why: str) -> None:
        """End it, if it has not run, as the kubelet does where the container runtime cannot start a container."""
        if self._process is None:
            self._end(128, "StartError", why)

    async def run(self, prepared: Prepared) -> int:
        """Run its program to its end."""
        if self.log is not None:
            self.previous_log = self.log
        self.log = prepared.log
        self._began, self.code = self._timestamp(), None
        try:
            process = await Process.start(prepared.command, prepared.log.write)
        except StartError as error:
            prepared.log.close()
            return self._end(_NOT_STARTED, "StartError", f"failed to start the program: {error}")
        self._process = process
        for number in self._asked:  # meanwhile
            process.send(number)
        self._become({"running": {"startedAt": self._began}})
        watching = asyncio.create_task(self._watch(process, prepared.actions))
        try:
            code = await process.wait()
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            prepared.log.close()
        return self._end(code, "Completed" if code == 0 else "Error", self._message(code, prepared))

    def terminate(self) -> None:
        """Ask its program to end."""
        if self._process is None or self._process.ended:
            self._asked.append(signal.SIGTERM)
        else:
            self._process.send(signal.SIGTERM)

    def kill(self) -> None:
        """End its program and all that it started, at once."""
        self._asked.append(signal.SIGKILL)
        if self._process is not None:
            self._process.send(signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        """Give its entry in the pod's status."""
        container_id = {"containerID": f"process://{self._process.pid}"} if self._process is not None else {}
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": "",
            **container_id,
            "state": self.state,
            "lastState": self.last_state,
            "restartCount": self.restarts,
            "ready": self.ready,
            "started": self.started.is_set() and self.runs,
        }

    def begin_again(self) -> None:
        """Get ready for another run."""
        self.last_state = {key: dict(value) for key, value in self.state.items() if key == "terminated"}
        self.restarts += 1
        self.started.clear()

    async def _watch(self, process: Process, actions: Actions) -> None:
        """Probe: first whether it has started, then whether it lives and is ready."""
        if startup := self.spec.get("startupProbe"):
            probing = asyncio.create_task(judge(startup, actions.attempt, self._judge_start(process)))
            try:
                await self.started.wait()
            finally:
                probing.cancel()
        self.started.set()
        if (readiness := self.spec.get("readinessProbe")) is None:
            self._set_ready(ready=True)
        self._changed()
        async with asyncio.TaskGroup() as tasks:
            if readiness is not None:
                tasks.create_task(judge(readiness, actions.attempt, lambda passed: self._set_ready(ready=passed)))
            if liveness := self.spec.get("livenessProbe"):
                tasks.create_task(self._guard(process, liveness, actions))

    def _judge_start(self, process: Process) -> Callable[[bool], None]:
        def told(passed: bool) -> None:
            if passed:
                self.started.set()
            else:
                self._end_unhealthy(process, self.spec["startupProbe"])

        return told

    async def _guard(self, process: Process, probe: Object, actions: Actions) -> None:
        def told(passed: bool) -> None:
            if not passed:
                self._end_unhealthy(process, probe)

        await judge(probe, actions.attempt, told)

    def _end_unhealthy(self, process: Process, probe: Object) -> None:
        """End a program that a probe found to be dead: SIGTERM, and SIGKILL after the grace period."""
        process.send(signal.SIGTERM)
        grace = float(probe.get("terminationGracePeriodSeconds", self._grace))
        asyncio.get_running_loop().call_later(grace, process.send, signal.SIGKILL)

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
        """Give what the program left in its message file, or its last lines where it failed and left nothing."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if text := prepared.message_file.read_text(encoding="utf-8")[-4096:]:
                return text
        fall_back = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        return prepared.log.tail() if code and fall_back else ""
