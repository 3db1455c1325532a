"""The logs of many tasks in one stream: which are wanted, and how whole lines come from many threads to one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tfcluster.errors import NoClusterError, TFClusterError
from tfcluster.kubernetes_api import KubernetesApi, Object
from tfcluster.log_lines import LogLine
from tfcluster.log_plan import Sight
from tfcluster.log_pods import containers, log_pods
from tfcluster.log_reader import Window
from tfcluster.task_names import Selection, TaskName, choose, declared

#: How many logs are followed at once where nothing else is said: each costs a connection and a thread.
MOST_FOLLOWED: Final = 100
#: Batches of lines that wait for whoever prints them: when there are more, the logs wait.
_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Which logs are wanted.

    Attributes:
        tasks: JOB or JOB-INDEX each; none means all tasks.
        follow: go on until the TFCluster has finished.
        previous: the failed pods of the tasks that are kept, and earlier containers of their pods.
        container: the container; "" means the one that speaks for the task.
        tail: how many lines from the end of each log; None means all.
        since_seconds: how old the oldest line may be; None means any age.
        limit: how many logs are followed at once.
    """

    tasks: Sequence[str] = ()
    follow: bool = False
    previous: bool = False
    container: str = ""
    tail: int | None = None
    since_seconds: int | None = None
    limit: int = MOST_FOLLOWED

    @property
    def window(self) -> Window:
        """Which part of each log."""
        return Window(self.tail, self.since_seconds)


class Channel:
    """Hands lines and words from many threads to one, in order; whoever gives waits while too many are there."""

    def __init__(self) -> None:
        self._items: deque[list[LogLine] | str] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: list[LogLine] | str) -> bool:
        """Hand over; tell whether anybody takes it."""
        with self._changed:
            while len(self._items) >= _WAITING and not self._closed and not isinstance(item, str):
                self._changed.wait()
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def take(self) -> list[LogLine] | str | None:
        """Wait for the next; None after the last."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            item = self._items.popleft() if self._items else None
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Let nothing more in; what is there can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class LogSource:
    """What the ways to read logs share: the chosen tasks, who gives lines and who takes them, and how it ends.

    Args:
        api: the connection.
        name: the TFCluster's name.
        namespace: its namespace; None is that of the connection.
        request: which logs.
        tell: takes words for the user; it is called by the thread that takes the lines.
    """

    def __init__(
        self, api: KubernetesApi, name: str, namespace: str | None, request: LogRequest, tell: Callable[[str], None]
    ) -> None:
        self.api, self.name, self.namespace, self.request = api, name, namespace, request
        self.failure: Exception | None = None
        self.channel = Channel()
        self._tell = tell
        self._selection: Selection | None = None

    def say(self, words: str) -> None:
        """Tell the user something, after the lines that came before it."""
        self.channel.put(words)

    def taken(self) -> Iterator[list[LogLine]]:
        """Give the lines until the channel is closed; then raise what went wrong."""
        while (item := self.channel.take()) is not None:
            if isinstance(item, str):
                self._tell(item)
            else:
                yield item
        if self.failure is not None:
            raise self.failure

    def sight(self, cluster: Object | None, pods: Sequence[Object], *, gone: bool = False) -> Sight:
        """Give what there is of the chosen tasks; the first time, check what was asked for.

        Raises:
            NoClusterError: there is no such TFCluster.
            NoTaskError: it has no such task.
            TFClusterError: no task has such a container.
        """
        if cluster is None:
            inside = self.namespace or self.api.namespace
            raise NoClusterError(
                f"there is no TFCluster {self.name} in namespace {inside}",
                hint="List what is there with `tfcluster status`, in all namespaces with -A.",
            )
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
