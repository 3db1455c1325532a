"""Objects of several kinds together, as they change."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tfcluster.errors import TFClusterError
from tfcluster.following import follow
from tfcluster.kubernetes_api import KubernetesApi, Object, Resource

#: Seconds in which changes that come together are taken together.
_TOGETHER: Final = 0.05


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects are followed; see KubernetesApi.list."""

    resource: Resource
    namespace: str | None = None
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What one selection has given.

    Attributes:
        objects: the objects.
        trouble: why they may be old; None where they are not.
        refused: why there are none and will be none; None where all is well.
    """

    objects: Sequence[Object] = field(default=())
    trouble: TFClusterError | None = None
    refused: TFClusterError | None = None


_News = tuple[int, Sequence[Object] | None, TFClusterError | None, Exception | None]


class Snapshots:
    """Follows several selections, each by a thread of its own.

    Args:
        api: the connection.
        selections: what is followed.
    """

    def __init__(self, api: KubernetesApi, selections: Sequence[Selection]) -> None:
        self._api = api
        self._selections = selections
        self._news: queue.Queue[_News] = queue.Queue()
        self._over = threading.Event()

    def each(self, *, tick: float | None = None) -> Iterator[tuple[Found, ...]]:
        """Give what there is, and again whenever something changed."""
        for number, selection in enumerate(self._selections):
            # NB: a thread of a watch waits for the server; the end of the process does not wait for it.
            threading.Thread(target=self._follow, args=(number, selection), daemon=True).start()
        found = [Found() for _ in self._selections]
        unknown = set(range(len(found)))
        try:
            while True:
                for news in self._take(tick):
                    unknown.discard(news[0])
                    found[news[0]] = _entered(found[news[0]], news)
                if not unknown:
                    yield tuple(found)
        finally:
            self._over.set()

    def _take(self, tick: float | None) -> Iterator[_News]:
        """Give what has come, and what comes with it."""
        try:
            yield self._news.get(timeout=tick)
            end = time.monotonic() + _TOGETHER
            while True:
                yield self._news.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return

    def _follow(self, number: int, selection: Selection) -> None:
        def broken(error: TFClusterError) -> None:
            if self._over.is_set():
                raise error
            self._news.put((number, None, error, None))

        try:
            for objects in follow(
                self._api,
                selection.resource,
                selection.namespace,
                labels=selection.labels,
                fields=selection.fields,
                broken=broken,
            ):
                if self._over.is_set():
                    return
                self._news.put((number, list(objects.values()), None, None))
        except Exception as error:  # noqa: BLE001 - who reads the queue must learn that nothing comes any more
            self._news.put((number, None, None, error))


def _entered(before: Found, news: _News) -> Found:
    _, objects, trouble, end = news
    if objects is not None:
        return Found(objects)
    if end is None:
        return Found(before.objects, trouble=trouble)
    if isinstance(end, TFClusterError):
        return Found(before.objects, refused=end)
    raise end
