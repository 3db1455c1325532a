"""The parent process of a container's program: it starts the program, passes signals on, and kills its descendants.

It is run as a script, by its path and with ``-I -S``: it does not import the package and starts in milliseconds. Its
standard input is a socket. The first line is the command as JSON; each further line is the number of a signal for the
program; 9 also kills all descendants. It reports one JSON object a line: ``started`` (the program's process ID) or
``error``, and at the end ``code`` (as container runtimes have it: 128 plus the signal's number if a signal ended it).

When the socket closes, ``tfcluster local run`` has ended for some reason, and everything is killed. On Linux all
descendants are found, even after a double fork; elsewhere only those in the program's process group.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
from typing import Any

_LINUX = sys.platform == "linux"
# The numbers of Linux's <sys/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run the command of the first line to its end."""
    control = socket.socket(fileno=os.dup(0))
    if _LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    # A handler and not SIG_IGN, which the program would inherit.
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    lines = _Lines(control)
    asked = lines.first()
    if asked is None:
        return
    started, error = _start(json.loads(asked))
    if started is None:
        _tell(control, error=error)
        return
    signal.signal(signal.SIGTERM, lambda *_: _send(started, signal.SIGTERM))
    _tell(control, started=started)
    code = _watch(started, lines, woken)
    _end_all(started)
    _tell(control, code=code)


def _watch(started: int, lines: "_Lines", woken: socket.socket) -> int:
    """Pass signals on until the program has ended; return its exit code."""
    poll = select.poll()
    poll.register(lines.socket, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        for number in lines.more():
            if number == signal.SIGKILL:
                return _end_all(started)
            _send(started, number)
        if (code := _reap(started)) is not None:
            return code
        poll.poll()
        with contextlib.suppress(BlockingIOError):
            woken.recv(4096, socket.MSG_DONTWAIT)


def _start(asked: dict[str, Any]) -> tuple[int | None, str]:
    """Start the program; return its process ID, or None and why it could not be started."""
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _become(asked, writing, parent)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as told:
        error = told.read()
    if error:
        os.waitpid(child, 0)
        return None, error
    return child, ""


def _become(asked: dict[str, Any], writing: int, parent: int) -> None:
    """Replace the forked process with the program."""
    argv, program = asked["argv"], asked["argv"][0]
    what = f'exec: "{program}"'
    try:
        os.setsid()
        if _LINUX:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        # Python ignores these two signals, and a program inherits ignored signals.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        what = f"chdir to {asked['cwd']!r}"
        os.chdir(asked["cwd"])
        what = f'exec: "{program}"'
        os.execvpe(program, argv, asked["env"])  # noqa: S606 - running the container's program is what is asked
    except (OSError, ValueError) as error:
        os.write(writing, f"{what}: {getattr(error, 'strerror', error)}".encode())
    os._exit(1)


def _reap(started: int) -> int | None:
    """Reap ended processes; return the program's exit code if it is among them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == started:
                code = _code(status)
    return code


def _end_all(started: int) -> int:
    """Kill all remaining processes; return the program's exit code if it is reaped here."""
    code = 128 + signal.SIGKILL
    while True:
        for pid in _descendants() if _LINUX else ():
            _send(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(started, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        if pid == started:
            code = _code(status)


def _descendants() -> list[int]:
    """Find every descendant of this process; a process whose parent died has become its child."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - likewise
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _tell(control: socket.socket, **what: Any) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(what).encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


class _Lines:
    """The lines that come over the socket."""

    def __init__(self, control: socket.socket) -> None:
        self.socket = control
        self._rest = b""

    def first(self) -> bytes | None:
        """Wait for the first line; None if the socket closes before."""
        while b"\n" not in self._rest:
            part = self.socket.recv(65536)
            if not part:
                return None
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def more(self) -> list[int]:
        """Return the signals requested so far; a closed socket requests SIGKILL for all."""
        try:
            part = self.socket.recv(4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            part = None
        except OSError:
            part = b""
        if part == b"":
            return [signal.SIGKILL]
        *whole, self._rest = (self._rest + (part or b"")).split(b"\n")
        return [int(line) for line in whole]


if __name__ == "__main__":
    main()
