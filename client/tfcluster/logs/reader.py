"""Reads one container's log to its end, however often the stream breaks.

The kubelet writes the time before each line.  A stream that is opened again begins with the second of the newest line;
the lines up to that one are then left out.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Final

import urllib3

from tfcluster.errors import NotFoundError, RefusedError, TFClusterError, UnreachableError
from tfcluster.kube.api import PODS, KubernetesApi
from tfcluster.logs.plan import LogPod

#: Longer lines are split, in bytes: a program can write without ever ending a line.
LONGEST: Final = 2**20

_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a task's log.

    Attributes:
        job: the task's job.
        index: the task's index.
        pod: the pod that wrote it, one of the successive pods of the task.
        container: the container.
        text: the line without its newline; invalid UTF-8 is replaced.
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


class Position:
    """The position in a log: the time of the newest line, and the number of lines of that time."""

    def __init__(self) -> None:
        self._newest, self._count = (0, ""), 0
        #: Up to this position, a reopened stream repeats lines.
        self._old, self._repeated = (0, ""), 0
        self._stamp, self._is_new = "", True

    def since(self) -> str:
        """Return the time for sinceTime where reading has to continue; "" before the first line."""
        second = self._newest[0]
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if second else ""

    def reopen(self) -> None:
        """Record that the stream begins again at ``since()``."""
        self._old, self._repeated = self._newest, self._count
        # Before the first timestamp is the rest of a line that was already read.
        self._stamp, self._is_new = "", not self._newest[0]

    def take(self, line: bytes) -> tuple[str, str] | None:
        """Process a line of the kubelet; return its time and text, None if it was read before."""
        whole = line.decode("utf-8", "replace")
        stamp, _, text = whole.partition(" ")
        match = _STAMP.fullmatch(stamp)
        if match is None:  # the kubelet does not put a timestamp into the middle of a long line
            return (self._stamp, whole) if self._is_new else None
        self._stamp = stamp
        second = int(datetime.fromisoformat(match[1] + match[3]).timestamp())
        when = second, (match[2] or "").ljust(9, "0")
        self._is_new = when > self._old or (when == self._old and self._repeated == 0)
        if when == self._old and self._repeated:
            self._repeated -= 1
        if not self._is_new:
            return None
        self._newest, self._count = (self._newest, self._count + 1) if when == self._newest else (when, 1)
        return stamp, text


#: The back-off before a log is opened again, in seconds: the first and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a log that is wanted: None means all, ``previous`` an earlier container of the same pod."""

    tail: int | None = None
    since_seconds: int | None = None
    previous: bool = False


class LogReader:
    """Reads one container's log; ``attempts`` are those that can fail one after the other, None means any number."""

    def __init__(
        self,
        api: KubernetesApi,
        pod: LogPod,
        namespace: str | None,
        window: Window,
        *,
        tell: Callable[[str], object],
        attempts: int | None = None,
    ) -> None:
        self.pod = pod
        self.failure: TFClusterError | None = None
        #: When the last data arrived, by time.monotonic().
        self.heard = time.monotonic()
        self._api, self._namespace, self._window = api, namespace, window
        self._tell, self._attempts = tell, attempts
        self._position = Position()
        self._rest = b""
        self._response: urllib3.BaseHTTPResponse | None = None
        self._over, self._stopped, self._woken = Event(), Event(), Event()
        if pod.state == "ended" or window.previous:
            self._over.set()

    def note_over(self) -> None:
        """Record that the container has ended: the rest of its log is read to the end."""
        self._over.set()
        self._woken.set()

    def stop(self) -> None:
        """Stop reading, from another thread."""
        self._stopped.set()
        self.note_over()
        if (response := self._response) is not None:
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                response.shutdown()

    def batches(self) -> Iterator[list[LogLine]]:
        """Return the lines until the container's end is read, its pod was deleted, or ``stop`` is called."""
        pause, tries, last = FIRST_PAUSE, 0, False
        while not self._stopped.is_set() and not last:
            self._woken.clear()
            over = self._over.is_set()
            try:
                for batch in self._read(follow=not over):
                    tries, pause = 0, FIRST_PAUSE
                    yield batch
                # A stream that was opened before the container ended can have ended for another reason: read once more.
                last = over
            except NotFoundError:
                last = True
                if self._position.since() and not over:
                    self._tell(f"{self.pod.task}: pod {self.pod.name} was deleted; its last lines might be missing")
            except (UnreachableError, RefusedError) as error:
                status = error.status if isinstance(error, RefusedError) else 0
                if status in {401, 403} or (status == 400 and over):
                    self.failure, last = error, True
                else:
                    tries += status != 400
                    last = self._give_up(error, tries)
            if not last:
                self._woken.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        if self._rest and (rest := self._new([self._rest])):
            yield rest

    def _give_up(self, error: TFClusterError, tries: int) -> bool:
        if self._attempts is not None and tries > self._attempts:
            self.failure = error
            return True
        # An unreachable API server is reported once for all logs, not here.
        if tries == 1 and not isinstance(error, UnreachableError):
            self._tell(f"{self.pod.task}: {error}; trying again")
        return False

    def _read(self, *, follow: bool) -> Iterator[list[LogLine]]:
        since, window = self._position.since(), self._window
        self._position.reopen()
        self._rest = b""  # the stream repeats the whole line
        response = self._api.open_log(
            self.pod.name,
            self._namespace,
            container=self.pod.container,
            follow=follow,
            previous="true" if window.previous else "",
            tailLines=None if since else window.tail,
            sinceSeconds=None if since else window.since_seconds,
            sinceTime=since,
            timestamps="true",
        )
        self._response = response
        try:
            if self._attempts is None:
                self._check_identity()
            # read1() returns available data; read() and stream() would wait for a whole block.
            while not self._stopped.is_set() and (chunk := response.read1()):
                self.heard = time.monotonic()
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                if len(self._rest) > LONGEST:
                    lines, self._rest = [*lines, self._rest], b""
                if new := self._new(lines):
                    yield new
        except urllib3.exceptions.ReadTimeoutError:
            return  # a silent log is opened again, because a connection can die unnoticed
        except Exception as error:
            if self._stopped.is_set():
                return
            if isinstance(error, (urllib3.exceptions.HTTPError, OSError)):
                raise UnreachableError("the connection to the API server was lost") from error
            raise
        finally:
            self._response = None
            response.close()

    def _check_identity(self) -> None:
        """Check that the opened log does not belong to a new pod of the same name."""
        found = self._api.list(PODS, self._namespace, fields=f"metadata.name={self.pod.name}")
        if not any(pod["metadata"]["uid"] == self.pod.uid for pod in found):
            raise NotFoundError(f"pod {self.pod.name} is gone", status=404, reason="NotFound")

    def _new(self, lines: list[bytes]) -> list[LogLine]:
        pod, taken = self.pod, (self._position.take(line) for line in lines)
        names = pod.task.job, pod.task.index, pod.name, pod.container
        return [LogLine(*names, text=one[1], timestamp=one[0]) for one in taken if one is not None]
