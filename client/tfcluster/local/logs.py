"""The logs of containers: one file each, where every line begins with its time, as the kubelet keeps them.

It also answers the API's log requests: following, tails, times, the previous container.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

#: A longer line is cut into several, as container runtimes do.
_LONGEST: Final = 16384
#: The limits of a failed program's message (kubelet: terminationMessagePolicy FallbackToLogsOnError).
_MESSAGE_BYTES: Final = 2048
_MESSAGE_LINES: Final = 80


class ContainerLog:
    """The log of one container."""

    def __init__(self, path: Path, heard: Callable[[bytes], None] = lambda _: None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _put_aside(path)
        self.path = path
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._heard = heard
        self._partial = b""
        self._last: deque[bytes] = deque(maxlen=_MESSAGE_LINES)
        self._grown = asyncio.Event()
        self.closed = False

    def write(self, chunk: bytes) -> None:
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        while len(self._partial) > _LONGEST:
            lines.append(self._partial[:_LONGEST])
            self._partial = self._partial[_LONGEST:]
        self._keep(lines)

    def _keep(self, lines: list[bytes]) -> None:
        if not lines:
            return
        at = _timestamp()
        self._file.write(b"".join(at + b" " + line + b"\n" for line in lines))
        self._last.extend(lines)
        for line in lines:
            self._heard(line)
        self._grown.set()

    def close(self) -> None:
        """Close the log: the program has ended."""
        if not self.closed:
            self._keep([self._partial] if self._partial else [])
            self._partial, self.closed = b"", True
            self._file.close()
            self._grown.set()

    def tail(self) -> str:
        """Return the last lines, up to the length of a termination message."""
        return b"\n".join(self._last)[-_MESSAGE_BYTES:].decode("utf-8", "replace")

    async def follow(self, since: int) -> AsyncIterator[bytes]:
        """Return the file's content from an offset on, and new output until the program has ended."""
        with self.path.open("rb") as file:
            file.seek(since)
            while True:
                self._grown.clear()
                over = self.closed
                while lines := file.readlines(1 << 20):
                    yield b"".join(lines)
                if over:
                    return
                await self._grown.wait()


def _lines(content: bytes) -> list[bytes]:
    # splitlines() would also split at carriage returns, that is, at every step of a progress bar.
    *whole, rest = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _timestamp() -> bytes:
    now = time.time_ns()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1_000_000_000))
    return f"{whole}.{now % 1_000_000_000:09d}Z".encode()


def _put_aside(path: Path) -> None:
    if not path.exists():
        return
    names = (path.with_suffix(f".{number}.log") for number in itertools.count(1))
    path.rename(next(older for older in names if not older.exists()))


async def answer(log: ContainerLog, query: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Answer a request for a log, as "kubectl logs" makes it."""
    timestamps, since = query.get("timestamps") in _TRUE, _since(query)
    content = log.path.read_bytes()
    lines = deque(_lines(content), maxlen=int(query["tailLines"]) if "tailLines" in query else None)
    yield b"".join(_shown(line, timestamps=timestamps) for line in lines if line[: len(since)] >= since)
    if query.get("follow") in _TRUE:
        async for chunk in log.follow(len(content)):
            yield b"".join(_shown(line, timestamps=timestamps) for line in _lines(chunk))


_TRUE: Final = ("true", "1")


def _shown(line: bytes, *, timestamps: bool) -> bytes:
    return line if timestamps else line.partition(b" ")[2]


def _since(query: Mapping[str, str]) -> bytes:
    """Return the time of the first wanted line, in the format of the log."""
    if "sinceSeconds" in query:
        at = time.time() - int(query["sinceSeconds"])
    elif "sinceTime" in query:
        at = datetime.fromisoformat(query["sinceTime"]).timestamp()
    else:
        return b""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)).encode()
