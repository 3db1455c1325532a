"""Follows the logs of many tasks: one thread for each log, one that decides, and two that watch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final

from tfcluster.cluster_watch import ClusterWatch
from tfcluster.errors import RefusedError, TFClusterError
from tfcluster.log_lines import LogLine
from tfcluster.log_plan import Progress, Sight, next_steps
from tfcluster.log_pods import LogPod, log_pods
from tfcluster.log_reader import LogReader, Window
from tfcluster.log_stream import LogSource

#: Seconds after which a log ends that could end, and does not become quiet.
_PATIENCE: Final = 15.0
#: Seconds until it is looked again whether a log has become quiet.
_LOOK: Final = 0.25


class LogFollowing(LogSource):
    """Follows logs until the TFCluster has finished; see LogSource."""

    def batches(self) -> Iterator[list[LogLine]]:
        """Give the lines as they come, those of a task in order.

        Raises:
            NoClusterError: there is no such TFCluster.
            NoTaskError: it has no such task.
            RefusedError: the API server said no.
            TFClusterError: there are more logs than may be followed at once.
        """
        director = _Director(self)
        director.start()
        try:
            yield from self.taken()
        finally:
            self.channel.close()
            director.stop()


class _Director:
    """Opens and ends logs as next_steps says; all of it but ``stop`` runs in its own thread."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._api = source.api.interruptible()
        self._watch = ClusterWatch(self._api, source.name, source.namespace, self._woken.set)
        self._progress = Progress()
        self._readers: dict[str, LogReader] = {}
        self._first: frozenset[str] = frozenset()
        self._quiet_since: dict[str, float] = {}
        self._trouble = ""
        self._lock = threading.Lock()
        self._ended: list[LogReader] = []
        self._thread = threading.Thread(target=self._direct, daemon=True, name=f"logs-of-{source.name}")

    def start(self) -> None:
        self._watch.start()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._woken.set()
        self._watch.stop()
        self._thread.join()
        for reader in self._readers.values():
            reader.stop()
        self._api.interrupt()
        self._api.close()

    def _direct(self) -> None:
        try:
            while not self._stopped.is_set() and not self._act():
                # NB: only a log that becomes quiet ends by time; everything else wakes us.
                self._woken.wait(_LOOK if self._quiet_since else None)
                self._woken.clear()
        except Exception as error:  # noqa: BLE001 - whoever takes the lines raises it
            self._source.failure = error
        finally:
            self._source.channel.close()

    def _act(self) -> bool:
        """Do what is to be done now; tell whether that was all."""
        watch, source, progress = self._watch, self._source, self._progress
        if watch.failure is not None:
            raise watch.failure
        if bool(watch.trouble) != bool(self._trouble):
            self._trouble = watch.trouble
            source.say(f"{self._trouble}; trying again" if self._trouble else "the API server answers again")
        self._note_ends()
        if not watch.complete:
            return False
        cluster, gone, pods = watch.snapshot()
        sight = source.sight(cluster, pods, gone=gone)
        self._note_states([*log_pods(sight.cluster["metadata"]["uid"], watch.departed()), *sight.pods])
        if not progress.begun:
            self._check_limit(sight)
            self._first = frozenset(pod.uid for pod in sight.pods)
        steps = next_steps(sight, progress, limit=source.request.limit)
        for key, words in steps.say.items():
            progress.told.add(key)
            if words:
                source.say(words)
        progress.read |= steps.skip
        for uid in steps.over:
            self._readers[uid].note_over()
        self._end_quiet(steps.quiet)
        for pod in steps.open:
            self._open(pod)
        progress.tasks |= {pod.task for pod in sight.pods} | (set() if progress.begun else set(sight.tasks))
        progress.begun = True
        return steps.done

    def _check_limit(self, sight: Sight) -> None:
        ended = {pod.task for pod in sight.pods if pod.state == "ended"}
        count, limit = len(set(sight.tasks) - ended), self._source.request.limit
        if count > limit:
            raise TFClusterError(
                f"{count} logs are too many to follow at once: the limit is {limit}",
                hint=f"Name jobs or tasks, such as worker-0, or allow more with --max-log-requests {count}.",
            )

    def _note_states(self, pods: list[LogPod]) -> None:
        """Remember how the pods whose logs were opened last are, so that it can be told how they ended."""
        for pod in pods:
            known = self._progress.last.get(pod.task)
            if known is not None and known.uid == pod.uid:
                self._progress.last[pod.task] = pod

    def _note_ends(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for reader in ended:
            uid, failure = reader.pod.uid, reader.failure
            if self._readers.pop(uid, None) is None:
                continue
            self._progress.open.discard(uid)
            self._progress.read.add(uid)
            if isinstance(failure, RefusedError) and failure.status in {401, 403}:
                raise failure
            last = self._progress.last[reader.pod.task]
            # NB: a container that never ran, and that of a pod that goes, have no log to speak of.
            if failure is not None and not (last.uid == uid and last.leaving):
                self._source.say(f"{reader.pod.task}: the log of pod {reader.pod.name} cannot be read: {failure}")

    def _end_quiet(self, quiet: Mapping[str, float]) -> None:
        now = time.monotonic()
        self._quiet_since = {uid: self._quiet_since.get(uid, now) for uid in quiet}
        for uid, since in self._quiet_since.items():
            reader = self._readers[uid]
            if now - max(since, reader.heard) > quiet[uid] or now - since > max(quiet[uid], _PATIENCE):
                # NB: its thread may wait for a first line that never comes; nobody waits for the thread.
                reader.stop()
                self._ended.append(reader)

    def _open(self, pod: LogPod) -> None:
        # NB: of a pod that came later everything is new.
        window = self._source.request.window if pod.uid in self._first else Window()
        source = self._source
        reader = LogReader(self._api, pod, source.namespace, window, give=source.channel.put, tell=source.say)
        self._readers[pod.uid] = reader
        self._progress.open.add(pod.uid)
        self._progress.last[pod.task] = pod
        threading.Thread(target=self._run, args=(reader,), daemon=True, name=f"log-of-{pod.name}").start()

    def _run(self, reader: LogReader) -> None:
        try:
            reader.run()
        finally:
            with self._lock:
                self._ended.append(reader)
            self._woken.set()
