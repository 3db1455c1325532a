"""The long-lived programs of a cluster: start them independently of this process, find them again, and stop them.

A program is recognised by a mark in its environment, which has the names of the program and of the cluster's state
folder. Without pid files, nothing is stale after a crash, and unrelated processes are never mistaken for ours.
Linux only: it reads /proc.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "TFCLUSTER_LOCAL_KUBERNETES_PROGRAM"
OWNER = "TFCLUSTER_LOCAL_KUBERNETES_OWNER"


@dataclass(frozen=True, slots=True)
class Program:
    """One running process of a cluster."""

    pid: int
    name: str
    state: Path
    owner: str
    """identity() of the process the cluster belongs to and must not outlive; empty: it belongs to nobody."""


def identity(pid: int) -> str:
    """Return an identifier for a process that is unique even if its process ID is reused.

    Returns:
        The process ID and the start time in clock ticks since the machine started; empty if the process does not exist.
    """
    with suppress(OSError):
        # The second field is the program's name in parentheses and may itself hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in "ZX":
            return f"{pid}:{fields[19]}"
    return ""


def launch(
    arguments: Sequence[str | Path],
    *,
    name: str,
    state: Path,
    enter: Sequence[str] = (),
    owner: str = "",
) -> None:
    """Start a program that outlives this process; its output goes to log/NAME.log in the state folder."""
    mark = {MARK: f"{name}@{state}", OWNER: owner}
    (state / "log").mkdir(exist_ok=True)
    with (state / "log" / f"{name}.log").open("ab") as log:
        # setsid --fork ends immediately, so the program becomes a child of init and never a zombie of ours.
        subprocess.run(
            [*enter, "setsid", "--fork", *arguments],
            # Not the whole environment: a proxy or a kubeconfig of the user would misdirect the programs.
            env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": "/", **mark},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )


def running(state: Path | None = None) -> list[Program]:
    """Return the programs that run now."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            program = _program(int(entry.name))
            if program and state in (None, program.state):
                found.append(program)
    return found


def dead(state: Path) -> set[Path]:
    """Return the logs of the programs that were started in a state folder and do not run."""
    alive = {program.name for program in running(state)}
    return {log for log in (state / "log").glob("*.log") if log.stem not in alive}


def _program(pid: int) -> Program | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return None
    values = dict(variable.decode(errors="replace").partition("=")[::2] for variable in variables)
    name, separator, state = values.get(MARK, "").partition("@")
    return Program(pid=pid, name=name, state=Path(state), owner=values.get(OWNER, "")) if separator else None


def stop(programs: Iterable[Program], *, grace: float = 0) -> None:
    """Stop programs and wait until they have ended."""
    handles = []
    try:
        for program in programs:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(program.pid)
                # Check again now that the handle pins the process: its process ID can have been reused before.
                if _program(program.pid) != program:
                    os.close(handle)
                    continue
                handles.append(handle)
                signal.pidfd_send_signal(handle, signal.SIGTERM if grace else signal.SIGKILL)
        if grace:
            for handle in _left_after(grace, handles):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        _left_after(30, handles)
    finally:
        for handle in handles:
            os.close(handle)


def _left_after(seconds: float, handles: Sequence[int]) -> list[int]:
    """Wait for the processes to end; return the handles of those that still run."""
    left = list(handles)
    deadline = time.monotonic() + seconds
    while left and (rest := deadline - time.monotonic()) > 0:
        poll = select.poll()
        for handle in left:
            poll.register(handle, select.POLLIN)
        ended = {handle for handle, _ in poll.poll(rest * 1000)}
        left = [handle for handle in left if handle not in ended]
    return left
