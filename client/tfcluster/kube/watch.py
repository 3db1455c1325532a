"""Objects as they change, whatever breaks: of one kind (follow), of several together (snapshots), in a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tfcluster.errors import RefusedError, TFClusterError, UnreachableError
from tfcluster.kube.api import PODS, TFCLUSTERS, InterruptibleApi, KubernetesApi, Object, Resource
from tfcluster_operator.declaration import naming

#: The longest time of a watch, in seconds; then the objects are listed again, because a connection can die unnoticed.
_WATCH: Final = 60.0
#: The back-off after a failure, in seconds: the first delay, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_EXPIRED: Final = 410


class Selection(NamedTuple):
    """The objects to follow; see KubernetesApi.list."""

    resource: Resource
    namespace: str | None = None
    labels: str = ""
    fields: str = ""


def follow(
    api: KubernetesApi,
    selection: Selection,
    *,
    until: float = float("inf"),
    broken: Callable[[TFClusterError], object] = lambda _: None,
) -> Iterator[list[Object]]:
    """Return all objects that match, now and at each change; raises the errors of the first request."""
    resource, namespace, labels, fields = selection
    known, pause = False, _FIRST_PAUSE
    while True:
        try:
            listed = api.list(resource, namespace, labels=labels, fields=fields)
            found = {_key(one): one for one in listed}
            yield [*found.values()]
            known, pause = True, _FIRST_PAUSE
            if (left := until - time.monotonic()) > 0:
                seconds, since = min(_WATCH, left), listed.version
                changes = api.watch(resource, namespace, labels=labels, fields=fields, since=since, seconds=seconds)
                for kind, body in changes:
                    if kind == "DELETED":
                        found.pop(_key(body), None)
                    else:
                        found[_key(body)] = body
                    yield [*found.values()]
        except (UnreachableError, RefusedError) as error:
            if not known or _is_final(error):
                raise
            broken(error)
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)


def _is_final(error: TFClusterError) -> bool:
    """Return whether a retry cannot help; it does after an expired version and when the server is overloaded."""
    return isinstance(error, RefusedError) and error.status < 500 and error.status not in {_EXPIRED, 429}


def _key(body: Object) -> tuple[str, str]:
    return str(body["metadata"].get("namespace", "")), str(body["metadata"]["name"])


#: Changes within this time, in seconds, are reported together.
_TOGETHER: Final = 0.05


@dataclass(frozen=True, slots=True)
class Found:
    """The last result of one selection."""

    objects: Sequence[Object] = field(default=())
    trouble: TFClusterError | None = None
    refused: TFClusterError | None = None


_News = tuple[int, Sequence[Object] | None, TFClusterError | None, Exception | None]


def snapshots(
    api: KubernetesApi, selections: Sequence[Selection], *, tick: float | None = None, together: float = _TOGETHER
) -> Iterator[tuple[Found, ...]]:
    """Return what the selections find, and again at each change, or after ``tick`` seconds; each has a thread."""
    news: queue.Queue[_News] = queue.Queue()
    over = threading.Event()
    for number, selection in enumerate(selections):
        # The thread of a watch blocks on the server; the process must not wait for it at its end.
        threading.Thread(target=_follow_into, args=(news, over, api, number, selection), daemon=True).start()
    found = [Found() for _ in selections]
    unknown = set(range(len(found)))
    try:
        while True:
            for one in _taken(news, tick, together):
                unknown.discard(one[0])
                found[one[0]] = _entered(found[one[0]], one)
            if not unknown:
                yield tuple(found)
    finally:
        over.set()


def _taken(news: queue.Queue[_News], tick: float | None, together: float) -> Iterator[_News]:
    """Return the changes that have arrived, with those that follow shortly."""
    with contextlib.suppress(queue.Empty):
        yield news.get(timeout=tick)
        end = time.monotonic() + together
        while together:
            yield news.get(timeout=max(0.0, end - time.monotonic()))


def _follow_into(
    news: queue.Queue[_News], over: threading.Event, api: KubernetesApi, number: int, selection: Selection
) -> None:
    def broken(error: TFClusterError) -> None:
        if over.is_set():
            raise error
        news.put((number, None, error, None))

    try:
        for objects in follow(api, selection, broken=broken):
            if over.is_set():
                return
            news.put((number, objects, None, None))
    except Exception as error:  # noqa: BLE001 - who reads the queue must learn that nothing comes any more
        news.put((number, None, None, error))


def _entered(before: Found, news: _News) -> Found:
    _, objects, trouble, end = news
    if objects is not None:
        return Found(objects)
    if end is None:
        return Found(before.objects, trouble=trouble)
    if isinstance(end, TFClusterError):
        return Found(before.objects, refused=end)
    raise end


class ClusterWatch:
    """Watches one TFCluster and its pods in a thread, until ``stop`` is called and the connection is interrupted.

    ``failure`` is a final error, ``trouble`` a temporary one.
    """

    def __init__(self, api: InterruptibleApi, name: str, namespace: str | None, changed: Callable[[], None]) -> None:
        self.failure: TFClusterError | None = None
        self.trouble = ""
        self.complete = False
        self._api, self._changed = api, changed
        self._selections = (
            Selection(TFCLUSTERS, namespace, fields=f"metadata.name={name}"),
            Selection(PODS, namespace, labels=f"{naming.LABEL_CLUSTER}={name}"),
        )
        self._cluster: Object | None = None
        self._gone = False
        self._pods: dict[str, Object] = {}
        self._departed: list[Object] = []
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._follow, daemon=True, name=f"watch-of-{name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, as soon as the connection is interrupted."""
        self._stopped = True

    def snapshot(self) -> tuple[Object | None, bool, list[Object]]:
        """Return the TFCluster as it was seen last, whether it was deleted since, and its pods."""
        with self._lock:
            return self._cluster, self._gone, list(self._pods.values())

    def departed(self) -> list[Object]:
        """Return the last state of the pods that were deleted since the previous call."""
        with self._lock:
            gone, self._departed = self._departed, []
            return gone

    def _follow(self) -> None:
        # Changes are not combined, so that the last state of a pod is seen before its deletion.
        for clusters, pods in snapshots(self._api, self._selections, together=0.0):
            if self._stopped:
                return
            with self._lock:
                self._take(clusters.objects, pods.objects)
            self.failure = clusters.refused or pods.refused
            self.trouble = str(pods.trouble or clusters.trouble or "")
            self.complete = self.failure is None
            self._changed()

    def _take(self, clusters: Sequence[Object], pods: Sequence[Object]) -> None:
        now = {pod["metadata"]["uid"]: pod for pod in pods}
        self._departed += [pod for uid, pod in self._pods.items() if uid not in now]
        self._pods = now
        if self._cluster is None:
            self._cluster = clusters[0] if clusters else None
        elif not self._gone:
            # A new TFCluster of the same name is not the requested one.
            same = [one for one in clusters if one["metadata"]["uid"] == self._cluster["metadata"]["uid"]]
            self._cluster, self._gone = (same[0], False) if same else (self._cluster, True)
