"""Programs, each under a shim: starting one, signalling it, its output, its end.

The shim ends all descendants of the program, even if this process is killed; see :mod:`tfcluster.local.shim`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
    async def start(cls, command: Command, output: Callable[[bytes], None]) -> Process:
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
