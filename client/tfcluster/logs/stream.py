"""The logs of many tasks in one stream: one after the other, or followed, with a thread for each log."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from tfcluster.errors import RefusedError, TFClusterError, no_cluster
from tfcluster.kube.api import PODS, TFCLUSTERS, KubernetesApi, Object
from tfcluster.kube.watch import ClusterWatch
from tfcluster.logs.plan import Progress, Sight, next_steps, not_started, without_pods
from tfcluster.logs.pods import LogPod, containers, log_pods
from tfcluster.logs.reader import LogLine, LogReader, Window
from tfcluster.tasks import Selection, TaskName, choose, declared
from tfcluster_operator.declaration import naming

#: The default number of logs that are followed at the same time: each needs a connection and a thread.
MOST_FOLLOWED: Final = 100
#: The number of batches that can wait for the reader; beyond it the logs wait.
_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class LogRequest:
    """The selection of logs."""

    tasks: Sequence[str] = ()
    follow: bool = False
    previous: bool = False
    container: str = ""
    tail: int | None = None
    since_seconds: int | None = None
    limit: int = MOST_FOLLOWED

    @property
    def window(self) -> Window:
        return Window(self.tail, self.since_seconds)


class Channel:
    """Passes lines and messages from many threads to one, in order; ``put`` blocks while the queue is full."""

    def __init__(self) -> None:
        self._items: deque[list[LogLine] | str] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: list[LogLine] | str) -> bool:
        """Add an item; return False if the channel is closed."""
        with self._changed:
            while len(self._items) >= _WAITING and not self._closed and not isinstance(item, str):
                self._changed.wait()
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def take(self) -> list[LogLine] | str | None:
        """Wait for the next item; None after the last."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            item = self._items.popleft() if self._items else None
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Accept no further items; queued items can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class LogSource:
    """The base of all ways to read logs: the chosen tasks, a reading thread, and the channel of lines."""

    def __init__(
        self, api: KubernetesApi, name: str, namespace: str | None, request: LogRequest, tell: Callable[[str], None]
    ) -> None:
        self.api, self.name, self.namespace, self.request = api, name, namespace, request
        self.failure: Exception | None = None
        self.channel = Channel()
        self._tell = tell
        self._selection: Selection | None = None

    def batches(self) -> Iterator[list[LogLine]]:
        """Return the lines, those of a task in order; then raise the error of the reading thread."""
        thread = threading.Thread(target=self._work, daemon=True, name=f"logs-of-{self.name}")
        thread.start()
        try:
            yield from self._taken()
        finally:
            self.channel.close()
            self.stop(thread)

    def read(self) -> None:
        """Read the logs, in a thread of its own."""
        raise NotImplementedError

    def stop(self, thread: threading.Thread) -> None:
        """Stop reading; the caller does not take further lines."""

    def _work(self) -> None:
        try:
            self.read()
        except Exception as error:  # noqa: BLE001 - whoever takes the lines raises it
            self.failure = error
        finally:
            self.channel.close()

    def say(self, words: str) -> None:
        """Print a message to the user, after the lines before it."""
        self.channel.put(words)

    def _taken(self) -> Iterator[list[LogLine]]:
        while (item := self.channel.take()) is not None:
            if isinstance(item, str):
                self._tell(item)
            else:
                yield item
        if self.failure is not None:
            raise self.failure

    def sight(self, cluster: Object | None, pods: Sequence[Object], *, gone: bool = False) -> Sight:
        """Return the state of the chosen tasks; the first call validates the selection."""
        if cluster is None:
            raise no_cluster(self.name, self.namespace or self.api.namespace)
        found = log_pods(cluster["metadata"]["uid"], pods, self.request.container)
        jobs = declared(cluster)
        if self._selection is None:
            self._selection = choose(self.request.tasks, jobs, [pod.task for pod in found], self.name)
            self._check_container(cluster, pods)
        chosen = self._selection
        tasks = [TaskName(job, index) for job, count in jobs.items() for index in range(count)]
        return Sight(
            cluster, [pod for pod in found if pod.task in chosen], [one for one in tasks if one in chosen], gone=gone
        )

    def _check_container(self, cluster: Object, pods: Sequence[Object]) -> None:
        wanted = self.request.container
        templates = [job.get("template") or {} for job in ((cluster.get("spec") or {}).get("jobs") or {}).values()]
        names = {name for pod in (*templates, *pods) if pod.get("spec") for name in containers(pod)}
        if wanted and wanted not in names:
            raise TFClusterError(
                f"no task of {self.name} has a container {wanted}; there are {', '.join(sorted(names))}",
                hint="Leave out -c for the log of the container that runs the task.",
            )


_ATTEMPTS: Final = 3


class LogTurns(LogSource):
    """Reads one log after another."""

    def read(self) -> None:
        cluster = self.api.find(TFCLUSTERS, self.name, self.namespace)
        pods = self.api.list(PODS, self.namespace, labels=f"{naming.LABEL_CLUSTER}={self.name}")
        failures: list[TFClusterError] = []
        for pod, window in self._chosen(self.sight(cluster, pods)):
            reader = LogReader(
                self.api, pod, self.namespace, window, give=self.channel.put, tell=self.say, attempts=_ATTEMPTS
            )
            reader.note_over()
            reader.run()
            if isinstance(reader.failure, RefusedError) and reader.failure.status in {401, 403}:
                raise reader.failure  # the others would fail in the same way
            if reader.failure is not None:
                failures.append(reader.failure)
                self.say(f"{pod.task}: the log of pod {pod.name} cannot be read: {reader.failure}")
        if failures:
            several = f"{len(failures)} logs" if len(failures) > 1 else "a log"
            raise TFClusterError(f"{several} could not be read", hint=failures[0].hint)

    def _chosen(self, sight: Sight) -> Iterator[tuple[LogPod, Window]]:
        """Choose the pods, and report tasks without a pod."""
        window, previous = self.request.window, self.request.previous
        if not previous:
            if words := without_pods(sight.tasks, sight.pods, sight.cluster):
                self.say(words)
            for line, _ in not_started([one for one in sight.pods if one.state == "waiting"]):
                self.say(line)
        for task, group in groupby(sight.pods, key=lambda pod: pod.task):
            pods = [pod for pod in group if pod.container]
            if previous:
                earlier = [(pod, window) for pod in pods if pod.kept and pod.readable]
                earlier += [(pod, replace(window, previous=True)) for pod in pods if pod.restarted]
                if not earlier:
                    self.say(f"{task}: no earlier log: no failed pod of it is kept (spec.failedPodsHistoryLimit)")
                yield from earlier
                continue
            speaking = [pod for pod in pods if not pod.kept] or pods
            if speaking and speaking[-1].readable:
                yield speaking[-1], window


#: After this time without a line, in seconds, a log ends if its cluster is finished or its pod was deleted.
_QUIET: Final = 3.0
#: The interval of that check, in seconds.
_LOOK: Final = 0.25


class LogFollowing(LogSource):
    """Follows logs until the TFCluster has finished, using next_steps; all but ``stop`` runs in its thread."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._own = self.api.interruptible()
        self._watch = ClusterWatch(self._own, self.name, self.namespace, self._woken.set)
        self._progress = Progress()
        self._readers: dict[str, LogReader] = {}
        self._first: frozenset[str] = frozenset()
        self._quiet_since: dict[str, float] = {}
        self._trouble = ""
        self._lock = threading.Lock()
        self._ended: list[LogReader] = []

    def stop(self, thread: threading.Thread) -> None:
        self._stopped.set()
        self._woken.set()
        self._watch.stop()
        thread.join()
        for reader in self._readers.values():
            reader.stop()
        self._own.interrupt()
        self._own.close()

    def read(self) -> None:
        self._watch.start()
        while not self._stopped.is_set() and not self._act():
            # Only a quiet log ends by time; all other changes wake this thread.
            self._woken.wait(_LOOK if self._quiet_since else None)
            self._woken.clear()

    def _act(self) -> bool:
        """Carry out the next steps; return whether they were the last."""
        watch, progress = self._watch, self._progress
        if watch.failure is not None:
            raise watch.failure
        if bool(watch.trouble) != bool(self._trouble):
            self._trouble = watch.trouble
            self.say(f"{self._trouble}; trying again" if self._trouble else "the API server answers again")
        self._note_ends()
        if not watch.complete:
            return False
        cluster, gone, pods = watch.snapshot()
        sight = self.sight(cluster, pods, gone=gone)
        self._note_states([*log_pods(sight.cluster["metadata"]["uid"], watch.departed()), *sight.pods])
        if not progress.begun:
            self._check_limit(sight)
            self._first = frozenset(pod.uid for pod in sight.pods)
        steps = next_steps(sight, progress, limit=self.request.limit)
        for key, words in steps.say.items():
            progress.told.add(key)
            if words:
                self.say(words)
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
        count, limit = len(set(sight.tasks) - ended), self.request.limit
        if count > limit:
            raise TFClusterError(
                f"{count} logs are too many to follow at the same time: the limit is {limit}",
                hint=f"Name jobs or tasks, such as worker-0, or allow more with --max-log-requests {count}.",
            )

    def _note_states(self, pods: list[LogPod]) -> None:
        """Record the state of the pods whose logs were opened last, so that their end can be reported."""
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
            # A container that never ran and a pod that is being deleted do not have a complete log.
            if failure is not None and not (last.uid == uid and last.leaving):
                self.say(f"{reader.pod.task}: the log of pod {reader.pod.name} cannot be read: {failure}")

    def _end_quiet(self, quiet: frozenset[str]) -> None:
        now = time.monotonic()
        self._quiet_since = {uid: self._quiet_since.get(uid, now) for uid in quiet}
        for uid, since in self._quiet_since.items():
            reader = self._readers[uid]
            if now - max(since, reader.heard) > _QUIET:
                # Its thread can be waiting for a first line that never comes, so it is not joined.
                reader.stop()
                self._ended.append(reader)

    def _open(self, pod: LogPod) -> None:
        # The log of a later pod is new from its beginning.
        window = self.request.window if pod.uid in self._first else Window()
        reader = LogReader(self._own, pod, self.namespace, window, give=self.channel.put, tell=self.say)
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


def log_batches(
    api: KubernetesApi, name: str, namespace: str | None, request: LogRequest, tell: Callable[[str], None]
) -> Iterator[list[LogLine]]:
    """Return the lines of tasks' logs; see Client.logs."""
    way = LogFollowing if request.follow else LogTurns
    return way(api, name, namespace, request, tell).batches()
