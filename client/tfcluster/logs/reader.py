"""Reads one container's log to its end: each line once and in order, however often the stream breaks.

The kubelet puts each line's time in front of it.  A stream that is opened again begins two seconds before the newest
line that was read, because ``sinceTime`` has whole seconds and two programs of a container may write a line a moment
out of order; what was read of these seconds is then left out.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Final

import urllib3

from tfcluster.errors import NotFoundError, RefusedError, TFClusterError, UnreachableError
from tfcluster.kube.api import PODS, KubernetesApi
from tfcluster.logs.pods import LogPod

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
        """Take a piece; return the lines that it completes, without their ends."""
        first, newline, rest = chunk.partition(b"\n")
        lines = self._add(first)
        if newline:
            lines.append(self.rest())
            *whole, last = rest.split(b"\n")
            lines += whole
            lines += self._add(last)
        return lines

    def rest(self) -> bytes:
        """Return what has no end yet, and forget it."""
        rest, self._pieces, self._size = b"".join(self._pieces), [], 0
        return rest

    def _add(self, piece: bytes) -> list[bytes]:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size <= LONGEST:
            return []
        whole = self.rest()
        # Where a long line is cut depends on the line alone, so that it is known again when it is read again.
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
        """Return the time from which the log must be read again, for sinceTime; "" before the first line."""
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
        """Return the time and the text of what was held, where nothing else comes."""
        held, self._held = self._held.decode("utf-8", "replace"), b""
        stamp, _, text = held.partition(" ")
        if _STAMP.fullmatch(stamp):
            return [(stamp, text)]
        # What a broken stream ended with may be a piece of a time.
        return [(self._stamp, held)] if held and self._clean else []

    def take(self, line: bytes) -> list[tuple[str, str]]:
        """Take a line as the kubelet gives it; return the time and the text of what is new with it, mostly one."""
        whole = line.decode("utf-8", "replace")
        stamp, _, text = whole.partition(" ")
        if not _STAMP.fullmatch(stamp):
            if not self._stamp and self._newest:
                return []  # the end of a long line that began before since()
            # The kubelet writes no time into the middle of a long line; of a server without times there is none.
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
            # A kubelet that rotates a log ends the stream within a line, and has the rest in the next file.
            return [(before[0][0] or stamp, before[0][1] + text)]
        return [*before, (stamp, text)]

    def _note(self, second: int, key: int) -> None:
        # A clock that was set back counts from there on: lines may then come twice, and none is lost.
        if second > self._newest or second < self._newest - _OVERLAP:
            self._newest = second
            self._seen = {when: keys for when, keys in self._seen.items() if second - _OVERLAP <= when <= second}
        self._seen.setdefault(second, Counter())[key] += 1

    def _second_of(self, stamp: str) -> int:
        spelled = stamp[:19] + ("Z" if stamp.endswith("Z") else stamp[-6:])
        if spelled != self._spelled:
            self._spelled, self._second = spelled, int(datetime.fromisoformat(stamp).timestamp())
        return self._second


#: Seconds until a log is opened again, the first time and at the most.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a log is wanted.

    Attributes:
        tail: how many lines from the end; None means all.
        since_seconds: how old the oldest line may be; None means any age.
        previous: of the container before the present one of the same pod.
    """

    tail: int | None = None
    since_seconds: int | None = None
    previous: bool = False


class LogReader:
    """Reads one container's log; ``run`` does it, from a thread of its own where the log is followed."""

    def __init__(
        self,
        api: KubernetesApi,
        pod: LogPod,
        namespace: str | None,
        window: Window,
        *,
        give: Callable[[list[LogLine]], bool],
        tell: Callable[[str], None],
        attempts: int | None = None,
    ) -> None:
        self.pod = pod
        self.failure: TFClusterError | None = None
        #: When something came last, by time.monotonic().
        self.heard = time.monotonic()
        self._api, self._namespace, self._window = api, namespace, window
        self._give, self._tell, self._attempts = give, tell, attempts
        self._position = Position()
        self._lines = Splitter()
        self._response: urllib3.BaseHTTPResponse | None = None
        self._over, self._stopped, self._woken = Event(), Event(), Event()
        if pod.state == "ended" or window.previous:
            self._over.set()

    def note_over(self) -> None:
        """Take note that the container writes no more: what there is is read to the end."""
        self._over.set()
        self._woken.set()

    def stop(self) -> None:
        """Read no more; the thread that reads ends soon."""
        self._stopped.set()
        self._over.set()
        self._woken.set()
        response = self._response
        if response is not None:
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                response.shutdown()

    def run(self) -> None:
        """Read, until the container's end is read, or its pod is gone, or ``stop`` is called."""
        pause, tries, last = FIRST_PAUSE, 0, False
        while not self._stopped.is_set() and not last:
            self._woken.clear()
            over, clean = self._over.is_set(), False
            try:
                count = self._read(follow=not over)
                clean = True
                # A stream that began before the container's end was known may have ended for another reason.
                last = over
                tries, pause = (0, FIRST_PAUSE) if count else (tries, pause)
            except NotFoundError:
                last = True
                if self._position.since() and not over:
                    self._tell(f"{self.pod.task}: pod {self.pod.name} is gone; its last lines may be missing")
            except UnreachableError as error:
                tries += 1
                last = self._give_up(error, tries)
            except RefusedError as error:
                last = error.status in {401, 403} or (error.status == 400 and over)
                if last:
                    self.failure = error
                else:
                    tries += error.status != 400
                    last = self._give_up(error, tries)
            if last:
                self._end()
            else:
                self._position.hold(self._lines.rest(), clean=clean)
                self._woken.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _give_up(self, error: TFClusterError, tries: int) -> bool:
        if self._attempts is not None and tries > self._attempts:
            self.failure = error
            return True
        # That the API server is gone is told once, and not by each log.
        if tries == 1 and not isinstance(error, UnreachableError):
            self._tell(f"{self.pod.task}: {error}; trying again")
        return False

    def _read(self, *, follow: bool) -> int:
        """Read one stream; return how many lines were new."""
        since, window = self._position.since(), self._window
        self._position.reopen()
        response = self._api.open_log(
            self.pod.name,
            self._namespace,
            container=self.pod.container,
            follow=follow,
            previous=window.previous,
            tail=None if since else window.tail,
            since_seconds=None if since else window.since_seconds,
            since_time=since,
            timestamps=True,
        )
        self._response = response
        count = 0
        try:
            if self._attempts is None:
                self._check_identity()
            # read1() gives what has come, where read() and stream() would wait for a whole block.
            while not self._stopped.is_set() and (chunk := response.read1()):
                self.heard = time.monotonic()
                take = self._position.take
                count += self._hand_over([new for line in self._lines.feed(chunk) for new in take(line)])
        except Exception as error:
            if self._stopped.is_set():
                return count
            if isinstance(error, TFClusterError):
                raise
            if isinstance(error, (urllib3.exceptions.HTTPError, OSError)):
                raise UnreachableError("the connection to the API server was lost") from error
            raise
        finally:
            self._response = None
            response.close()
        return count

    def _check_identity(self) -> None:
        """Make sure that the log that was just opened is not that of the next pod of the same name."""
        found = self._api.list(PODS, self._namespace, fields=f"metadata.name={self.pod.name}")
        if not any(pod["metadata"]["uid"] == self.pod.uid for pod in found):
            raise NotFoundError(f"pod {self.pod.name} is gone", status=404, reason="NotFound")

    def _end(self) -> None:
        """Hand over a last line that has no end."""
        if rest := self._lines.rest():
            self._hand_over(self._position.take(rest))
        self._hand_over(self._position.finish())

    def _hand_over(self, taken: list[tuple[str, str]]) -> int:
        pod = self.pod
        lines = [LogLine(pod.task.job, pod.task.index, pod.name, pod.container, text, stamp) for stamp, text in taken]
        if lines and not self._give(lines):
            self._stopped.set()
        return len(lines)
