"""The lines of one container's log, each once and in order, however often the stream that brings them breaks.

The kubelet puts each line's time in front of it.  A stream that is opened again begins two seconds before the newest
line that was read, because ``sinceTime`` has whole seconds and two programs of a container may write a line a moment
out of order; what was read of these seconds is then left out.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

#: A line that is longer comes in parts of this size, in bytes: a program may write without ever ending a line.
LONGEST: Final = 16 * 2**20

_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
#: The seconds before the newest line that are read again.
_OVERLAP: Final = 1


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a task's log.

    Attributes:
        job: the task's job.
        index: the task's index.
        pod: the pod that wrote it: a task's pods follow each other.
        container: the container.
        text: the line without its end; what is no UTF-8 is replaced.
        timestamp: when it was written, by the node's clock, as RFC 3339 has it with nanoseconds; "" if unknown.
    """

    job: str
    index: int
    pod: str
    container: str
    text: str
    timestamp: str

    @property
    def time(self) -> datetime | None:
        """When it was written, in UTC and by the node's clock; None if unknown."""
        return datetime.fromisoformat(self.timestamp).astimezone(UTC) if self.timestamp else None


class Splitter:
    """Makes whole lines of the pieces in which a stream arrives."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a piece; give the lines that it completes, without their ends."""
        first, newline, rest = chunk.partition(b"\n")
        lines = self._add(first)
        if newline:
            lines.append(self.rest())
            *whole, last = rest.split(b"\n")
            lines += whole
            lines += self._add(last)
        return lines

    def rest(self) -> bytes:
        """Give what has no end yet, and forget it."""
        rest, self._pieces, self._size = b"".join(self._pieces), [], 0
        return rest

    def _add(self, piece: bytes) -> list[bytes]:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size <= LONGEST:
            return []
        whole = self.rest()
        # NB: where a long line is cut depends on the line alone, so that it is known again when it is read again.
        parts = [whole[at : at + LONGEST] for at in range(0, len(whole), LONGEST)]
        self._pieces, self._size = [parts[-1]], len(parts[-1])
        return parts[:-1]


class Position:
    """How far a log was read."""

    def __init__(self) -> None:
        self._seen: dict[int, Counter[int]] = {}
        self._again: Counter[int] = Counter()
        self._newest = 0
        self._stamp = ""
        #: The last time that was spelled out, and its second: most lines of a busy program share it.
        self._spelled, self._second = "", 0
        #: What a stream ended with, of a line without an end; and whether the stream was ended by the server.
        self._held, self._clean = b"", True

    def since(self) -> str:
        """Give the time from which the log must be read again, for sinceTime; "" before the first line."""
        if not self._newest:
            return ""
        return datetime.fromtimestamp(self._newest - _OVERLAP, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def reopen(self) -> None:
        """Note that the stream begins again at ``since()``: what was read of that time comes once more."""
        self._again = sum(self._seen.values(), Counter())
        self._stamp = ""

    def hold(self, rest: bytes, *, clean: bool) -> None:
        """Keep the beginning of a line that a stream ended with: the next brings all of it, or its rest, or neither."""
        self._held, self._clean = rest or self._held, clean

    def finish(self) -> list[tuple[str, str]]:
        """Give the time and the text of what was held, where nothing else comes."""
        held, self._held = self._held.decode("utf-8", "replace"), b""
        stamp, _, text = held.partition(" ")
        if _STAMP.fullmatch(stamp):
            return [(stamp, text)]
        # NB: what a broken stream ended with may be a piece of a time.
        return [(self._stamp, held)] if held and self._clean else []

    def take(self, line: bytes) -> list[tuple[str, str]]:
        """Take a line as the kubelet gives it; give the time and the text of what is new with it, mostly one."""
        whole = line.decode("utf-8", "replace")
        stamp, _, text = whole.partition(" ")
        if not _STAMP.fullmatch(stamp):
            if not self._stamp and self._newest:
                return []  # the end of a long line that began before since()
            # NB: the kubelet writes no time into the middle of a long line; of a server without times there is none.
            stamp, text = self._stamp, whole
        self._stamp = stamp
        key = hash((stamp, text))
        if self._again[key] > 0:
            self._again[key] -= 1
            return []
        if stamp:
            self._note(self._second_of(stamp), key)
        return self._with_held(stamp, text, line) if self._held else [(stamp, text)]

    def _with_held(self, stamp: str, text: str, line: bytes) -> list[tuple[str, str]]:
        if line.startswith(self._held):
            self._held = b""
            return [(stamp, text)]
        before = self.finish()
        if before and self._clean:
            # NB: a kubelet that rotates a log ends the stream within a line, and has the rest in the next file.
            return [(before[0][0] or stamp, before[0][1] + text)]
        return [*before, (stamp, text)]

    def _note(self, second: int, key: int) -> None:
        # NB: a clock that was set back counts from there on: lines may then come twice, and none is lost.
        if second > self._newest or second < self._newest - _OVERLAP:
            self._newest = second
            self._seen = {when: keys for when, keys in self._seen.items() if second - _OVERLAP <= when <= second}
        self._seen.setdefault(second, Counter())[key] += 1

    def _second_of(self, stamp: str) -> int:
        spelled = stamp[:19] + ("Z" if stamp.endswith("Z") else stamp[-6:])
        if spelled != self._spelled:
            self._spelled, self._second = spelled, int(datetime.fromisoformat(stamp).timestamp())
        return self._second
