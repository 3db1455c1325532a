"""Reads one container's log to its end, through every break of the stream."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Final

import urllib3

from tfcluster.errors import NotFoundError, RefusedError, TFClusterError, UnreachableError
from tfcluster.kubernetes_api import PODS, KubernetesApi
from tfcluster.log_lines import LogLine, Position, Splitter
from tfcluster.log_pods import LogPod

#: Seconds until a log is opened again, the first time and at the most.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
#: Lines that are handed over at once, at the most: a log of many must not come in one piece.
_BATCH: Final = 1000


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
    """Reads one container's log; ``run`` does it, from a thread of its own where the log is followed.

    Args:
        api: the connection.
        pod: the pod.
        namespace: its namespace.
        window: which part of the log is wanted.
        give: takes lines; it tells whether more are wanted, and may wait.
        tell: takes words for the user.
        attempts: how often a stream that broke is opened again before that is an error; None means for ever.
    """

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
        #: Why the log could not be read to its end.
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
                # NB: a stream that began before the container's end was known may have ended for another reason.
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
        # NB: that the API server is gone is told once, and not by each log.
        if tries == 1 and not isinstance(error, UnreachableError):
            self._tell(f"{self.pod.task}: {error}; trying again")
        return False

    def _read(self, *, follow: bool) -> int:
        """Read one stream; give how many lines were new."""
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
            # NB: read1() gives what has come, where read() and stream() would wait for a whole block.
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
        for start in range(0, len(lines), _BATCH):
            if not self._give(lines[start : start + _BATCH]):
                self._stopped.set()
                break
        return len(lines)
