"""Steps of a set-up, each in a process: steps run in parallel once their predecessors are done.

Each step prints one line at its end, with its wall time and its processor time. Its own output goes to a log; the end
of the log is shown if the step fails.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console


class StepError(Exception):
    """A step has failed; the message has the last lines of its output."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    name: str
    does: str
    """What the user reads."""
    after: tuple[str, ...] = ()
    """The names of those that must be done before."""


@dataclass(slots=True)
class Run:
    """One run of steps.

    Args:
        steps: In an order that also works one by one: each after its predecessors.
        command: Return the command line of a step.
        logs: The folder of the steps' logs.
        console: Where the lines go; on a terminal a last line shows the running steps.
    """

    steps: Sequence[Step]
    command: Callable[[Step], Sequence[str]]
    logs: Path
    console: Console
    cpu: float = 0.0
    """Seconds of processor time that all steps have taken, their children's with theirs."""
    _done: dict[str, asyncio.Event] = field(default_factory=dict)
    _doing: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject a step that would wait for itself, for a cycle, or for an unknown step."""
        known: set[str] = set()
        for step in self.steps:
            if missing := set(step.after) - known:
                raise ValueError(f"step {step.name} is after {', '.join(sorted(missing))}, which no step before it is")
            known.add(step.name)

    def go(self) -> None:
        """Run all steps.

        Raises:
            StepError: One has failed; those that ran in parallel have been ended.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            asyncio.run(self._all())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _all(self) -> None:
        began = time.monotonic()
        self._done = {step.name: asyncio.Event() for step in self.steps}
        with self.console.status("") as status:
            async with asyncio.TaskGroup() as everything:
                waiting = {everything.create_task(self._one(step)) for step in self.steps}
                while waiting:
                    now = time.monotonic()
                    doing = (f"{does} ({span(now - since)})" for does, since in self._doing.items())
                    status.update(f"{span(now - began)}: {', '.join(doing)}")
                    _, waiting = await asyncio.wait(waiting, timeout=1, return_when=asyncio.FIRST_COMPLETED)

    async def _one(self, step: Step) -> None:
        for name in step.after:
            await self._done[name].wait()
        began = self._doing[step.does] = time.monotonic()
        log = self.logs / f"{step.name.replace(' ', '-')}.log"
        process = self._start(step, log)
        try:
            _, status, usage = await asyncio.to_thread(os.wait4, process.pid, 0)
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise
        finally:
            del self._doing[step.does]
        process.returncode = os.waitstatus_to_exitcode(status)  # otherwise Popen would consider it running
        if process.returncode:
            said = log.read_text(errors="replace").strip().splitlines()[-20:]
            raise StepError(f"{step.does} ended with status {process.returncode}:\n" + "\n".join(said))
        cpu = usage.ru_utime + usage.ru_stime
        self.cpu += cpu
        took = span(time.monotonic() - began)
        self.console.print(f"  {step.does:<44} {took:>10}   CPU {span(cpu):>10}", highlight=False)
        self._done[step.name].set()

    def _start(self, step: Step, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            # A new session, so that all its child processes can be ended with it.
            return subprocess.Popen(
                self.command(step), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )


def span(seconds: float) -> str:
    """Format a duration for people."""
    whole = round(seconds)
    if whole >= 100:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole} s" if seconds >= 9.95 else f"{seconds:.1f} s"
