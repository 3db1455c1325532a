"""The logs of many tasks in one stream: one after the other, or followed, with a thread for each log."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from tfcluster.errors import RefusedError, TFClusterError, no_cluster
from tfcluster.kube.api import PODS, TFCLUSTERS, KubernetesApi, Object, Selection
from tfcluster.kube.watch import Found, snapshots
from tfcluster.logs.plan import LogPod, Progress, Sight, containers, log_pods, next_steps, not_started, without_pods
from tfcluster.logs.reader import LogLine, LogReader, Window
from tfcluster.tasks import Selection as Tasks
from tfcluster.tasks import TaskName, choose, declared
from tfcluster_operator.declaration import naming

#: The default number of logs that are followed at the same time: each needs a connection and a thread.
MOST_FOLLOWED: Final = 100


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


def log_batches(
    api: KubernetesApi, name: str, namespace: str | None, request: LogRequest, tell: Callable[[str], None]
) -> Iterator[list[LogLine]]:
    """Return the lines of tasks' logs, those of a task in order; see Client.logs."""
    if request.follow:
        return LogFollowing(api, name, namespace, request, tell).batches()
    return _in_turn(api, name, namespace, request, tell)


def _choose(name: str, request: LogRequest, cluster: Object, pods: Sequence[Object]) -> Tasks:
    found = log_pods(cluster["metadata"]["uid"], pods)
    chosen = choose(request.tasks, declared(cluster), [pod.task for pod in found], name)
    templates = [job.get("template") or {} for job in ((cluster.get("spec") or {}).get("jobs") or {}).values()]
    names = {name for pod in (*templates, *pods) if pod.get("spec") for name in containers(pod)}
    if request.container and request.container not in names:
        raise TFClusterError(
            f"no task of {name} has a container {request.container}; there are {', '.join(sorted(names))}",
            hint="Leave out -c for the log of the container that runs the task.",
        )
    return chosen


def _sight(chosen: Tasks, container: str, cluster: Object, pods: Sequence[Object], *, gone: bool = False) -> Sight:
    found = [pod for pod in log_pods(cluster["metadata"]["uid"], pods, container) if pod.task in chosen]
    tasks = [TaskName(job, index) for job, count in declared(cluster).items() for index in range(count)]
    return Sight(cluster, found, [one for one in tasks if one in chosen], gone=gone)


def _is_denied(error: TFClusterError | None) -> bool:
    """Return whether every other log would fail in the same way."""
    return isinstance(error, RefusedError) and error.status in {401, 403}


def _in_turn(
    api: KubernetesApi, name: str, namespace: str | None, request: LogRequest, tell: Callable[[str], None]
) -> Iterator[list[LogLine]]:
    cluster = api.cluster(name, namespace)
    pods = api.list(PODS, namespace, labels=f"{naming.LABEL_CLUSTER}={name}")
    sight = _sight(_choose(name, request, cluster, pods), request.container, cluster, pods)
    failures: list[TFClusterError] = []
    for pod, window in (_earlier if request.previous else _latest)(sight, request.window, tell):
        reader = LogReader(api, pod, namespace, window, tell=tell, attempts=3)
        reader.note_over()
        yield from reader.batches()
        if reader.failure is not None:
            if _is_denied(reader.failure):
                raise reader.failure
            failures.append(reader.failure)
            tell(f"{pod.task}: the log of pod {pod.name} cannot be read: {reader.failure}")
    if failures:
        several = f"{len(failures)} logs" if len(failures) > 1 else "a log"
        raise TFClusterError(f"{several} could not be read", hint=failures[0].hint)


def _earlier(sight: Sight, window: Window, tell: Callable[[str], None]) -> Iterator[tuple[LogPod, Window]]:
    for task, group in groupby(sight.pods, key=lambda pod: pod.task):
        pods = [pod for pod in group if pod.container]
        earlier = [(pod, window) for pod in pods if pod.kept and pod.readable]
        earlier += [(pod, replace(window, previous=True)) for pod in pods if pod.restarted]
        if not earlier:
            tell(f"{task}: no earlier log: no failed pod of it is kept (spec.failedPodsHistoryLimit)")
        yield from earlier


def _latest(sight: Sight, window: Window, tell: Callable[[str], None]) -> Iterator[tuple[LogPod, Window]]:
    """Choose the last pod of each task, and report tasks without a log."""
    if words := without_pods(sight.tasks, sight.pods, sight.cluster):
        tell(words)
    for line, _ in not_started([one for one in sight.pods if one.state == "waiting"]):
        tell(line)
    for _, group in groupby(sight.pods, key=lambda pod: pod.task):
        pods = [pod for pod in group if pod.container]
        speaking = [pod for pod in pods if not pod.kept] or pods
        if speaking and speaking[-1].readable:
            yield speaking[-1], window


#: The number of items that can wait for the caller; beyond it the logs wait.
_WAITING: Final = 64
#: After this time without a line, in seconds, a log ends if its cluster is finished or its pod was deleted.
_QUIET: Final = 3.0
#: The interval of that check, in seconds.
_LOOK: Final = 0.25
#: The interval, in seconds, of the check whether the caller has closed the iterator.
_TICK: Final = 1.0


#: Lines, a message, what the watch found, a reader that has ended, or an error that ends all.
_Item = list[LogLine] | str | tuple[Found, ...] | LogReader | Exception


class LogFollowing:
    """Follows logs until the TFCluster has finished, using next_steps.

    The threads of the watch and of the logs put ``items``; all else runs in the thread that takes the lines.
    """

    def __init__(
        self, api: KubernetesApi, name: str, namespace: str | None, request: LogRequest, tell: Callable[[str], None]
    ) -> None:
        self._api, self._name, self._namespace, self._request = api, name, namespace, request
        self._tell = tell
        self._chosen: Tasks | None = None
        self.items: queue.Queue[_Item] = queue.Queue(_WAITING)
        self._stopped = threading.Event()
        self._cluster: Object | None = None
        self._gone = False
        self._pods: dict[str, Object] = {}
        self._departed: list[Object] = []
        self._progress = Progress()
        self._readers: dict[str, LogReader] = {}
        self._first: frozenset[str] = frozenset()
        self._quiet_since: dict[str, float] = {}
        self._trouble = ""

    def batches(self) -> Iterator[list[LogLine]]:
        """Return the lines, those of a task in order; raises the errors of Client.logs."""
        threading.Thread(target=self._watch, daemon=True, name=f"watch-of-{self._name}").start()
        try:
            done, due, acted = False, False, 0.0
            while not done:
                item = self._next()
                if isinstance(item, list):
                    yield item
                elif isinstance(item, str):
                    self._tell(item)
                elif isinstance(item, Exception):
                    raise item
                elif isinstance(item, LogReader):
                    self._note_end(item)
                elif item is not None:
                    self._see(*item)
                due = due or not isinstance(item, list | str)
                # Changes of many pods that come together need one decision.
                if due and (self.items.empty() or time.monotonic() > acted + _LOOK):
                    done, due, acted = self._act(), False, time.monotonic()
        finally:
            self._stopped.set()
            for reader in self._readers.values():
                reader.stop()

    def _next(self) -> _Item | None:
        """Wait for an item; only a quiet log ends by time, all other changes are items."""
        with contextlib.suppress(queue.Empty):
            return self.items.get(timeout=_LOOK if self._quiet_since else None)
        return None

    def put(self, item: _Item) -> bool:
        """Add an item when there is room for it; return False if the reader has ended."""
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self.items.put(item, timeout=1.0)
                return True
        return False

    def _watch(self) -> None:
        selections = (
            Selection(TFCLUSTERS, self._namespace, fields=f"metadata.name={self._name}"),
            Selection(PODS, self._namespace, labels=f"{naming.LABEL_CLUSTER}={self._name}"),
        )
        try:
            # Changes are not combined, so that the last state of a pod is seen before its deletion.
            for found in snapshots(self._api, selections, tick=_TICK, together=0.0):
                if not self.put(found):
                    return
        except Exception as error:  # noqa: BLE001 - whoever takes the lines raises it
            self.put(error)

    def _run(self, reader: LogReader) -> None:
        try:
            for batch in reader.batches():
                if not self.put(batch):
                    return
        finally:
            self.put(reader)

    def _see(self, clusters: Found, pods: Found) -> None:
        """Record what the watch found; raises a final error."""
        if (refused := clusters.refused or pods.refused) is not None:
            raise refused
        trouble = str(pods.trouble or clusters.trouble or "")
        if bool(trouble) != bool(self._trouble):
            self._tell(f"{trouble}; trying again" if trouble else "the API server answers again")
        self._trouble = trouble
        if self._cluster is None:
            if not clusters.objects:
                raise no_cluster(self._name, self._namespace or self._api.namespace)
            self._cluster = clusters.objects[0]
            self._chosen = _choose(self._name, self._request, self._cluster, pods.objects)
        # A new TFCluster of the same name is not the requested one.
        uid = self._cluster["metadata"]["uid"]
        same = next((one for one in clusters.objects if one["metadata"]["uid"] == uid), None)
        self._gone = self._gone or same is None
        self._cluster = same or self._cluster
        before, self._pods = self._pods, {pod["metadata"]["uid"]: pod for pod in pods.objects}
        self._departed += [pod for own, pod in before.items() if own not in self._pods]

    def _act(self) -> bool:
        """Carry out the next steps; return whether they were the last."""
        if self._cluster is None or self._chosen is None:
            return False
        progress, pods = self._progress, [*self._pods.values()]
        sight = _sight(self._chosen, self._request.container, self._cluster, pods, gone=self._gone)
        departed, self._departed = self._departed, []
        # The last state of the pods whose logs were opened last, so that their end can be reported.
        for pod in (*log_pods(self._cluster["metadata"]["uid"], departed, self._request.container), *sight.pods):
            known = progress.last.get(pod.task)
            if known is not None and known.uid == pod.uid:
                progress.last[pod.task] = pod
        if not progress.begun:
            tasks = {*sight.tasks} - {pod.task for pod in sight.pods if pod.state == "ended"}
            if (count := len(tasks)) > (limit := self._request.limit):
                hint = f"Name jobs or tasks, such as worker-0, or allow more with --max-log-requests {count}."
                words = f"{count} logs are too many to follow at the same time: the limit is {limit}"
                raise TFClusterError(words, hint=hint)
            self._first = frozenset(pod.uid for pod in sight.pods)
        steps = next_steps(sight, progress)
        for key, words in steps.say.items():
            progress.told.add(key)
            if words:
                self._tell(words)
        progress.read |= steps.skip
        for uid in steps.over:
            self._readers[uid].note_over()
        self._end_quiet(steps.quiet)
        for pod in steps.open:
            self._open(pod)
        progress.tasks |= {pod.task for pod in sight.pods} | (set() if progress.begun else set(sight.tasks))
        progress.begun = True
        return steps.done

    def _note_end(self, reader: LogReader) -> None:
        uid, failure = reader.pod.uid, reader.failure
        if self._readers.pop(uid, None) is None:
            return
        self._progress.open.discard(uid)
        self._progress.read.add(uid)
        if failure is not None and _is_denied(failure):
            raise failure
        last = self._progress.last[reader.pod.task]
        # A container that never ran and a pod that is being deleted do not have a complete log.
        if failure is not None and not (last.uid == uid and last.leaving):
            self._tell(f"{reader.pod.task}: the log of pod {reader.pod.name} cannot be read: {failure}")

    def _end_quiet(self, quiet: frozenset[str]) -> None:
        now = time.monotonic()
        self._quiet_since = {uid: self._quiet_since.get(uid, now) for uid in quiet}
        for uid, since in self._quiet_since.items():
            reader = self._readers[uid]
            if now - max(since, reader.heard) > _QUIET:
                reader.stop()
                # Its thread can be waiting for a first line that never comes.
                self._note_end(reader)

    def _open(self, pod: LogPod) -> None:
        # The log of a later pod is new from its beginning.
        window = self._request.window if pod.uid in self._first else Window()
        reader = LogReader(self._api, pod, self._namespace, window, tell=self.put)
        self._readers[pod.uid] = reader
        self._progress.open.add(pod.uid)
        self._progress.last[pod.task] = pod
        threading.Thread(target=self._run, args=(reader,), daemon=True, name=f"log-of-{pod.name}").start()
