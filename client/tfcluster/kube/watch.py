"""Objects as they change, whatever breaks: of one kind (follow), or of several together (snapshots)."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tfcluster.errors import RefusedError, TFClusterError, UnreachableError
from tfcluster.kube.api import KubernetesApi, Object, Selection

#: The longest time of a watch, in seconds; then the objects are listed again, because a connection can die unnoticed.
_WATCH: Final = 60.0
#: The back-off after a failure, in seconds: the first delay, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0


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
                for kind, body in api.watch(selection, since=listed.version, seconds=min(_WATCH, left)):
                    if kind == "DELETED":
                        found.pop(_key(body), None)
                    else:
                        found[_key(body)] = body
                    yield [*found.values()]
        except (UnreachableError, RefusedError) as error:
            # A retry helps after an expired version (410), and when the server is overloaded.
            if not known or (isinstance(error, RefusedError) and error.status < 500 and error.status not in {410, 429}):
                raise
            broken(error)
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)


def _key(body: Object) -> tuple[str, str]:
    return str(body["metadata"].get("namespace", "")), str(body["metadata"]["name"])


#: Changes within this time, in seconds, are reported together.
_TOGETHER: Final = 0.05


@dataclass(frozen=True, slots=True)
class Found:
    """The last result of one selection."""

    objects: Sequence[Object] = ()
    trouble: TFClusterError | None = None
    refused: TFClusterError | None = None


_News = queue.Queue[tuple[int, Found | Exception]]


def snapshots(
    api: KubernetesApi, selections: Sequence[Selection], *, tick: float | None = None, together: float = _TOGETHER
) -> Iterator[tuple[Found, ...]]:
    """Return what the selections find, and again at each change, or after ``tick`` seconds; each has a thread."""
    news, over = _News(), threading.Event()
    for number, selection in enumerate(selections):
        # The thread of a watch blocks on the server; the process must not wait for it at its end.
        threading.Thread(target=_follow_into, args=(news, over, api, number, selection), daemon=True).start()
    found: dict[int, Found] = {}
    try:
        while True:
            for number, one in _taken(news, tick, together):
                if isinstance(one, Exception):
                    raise one
                found[number] = one
            if len(found) == len(selections):
                yield tuple(found[number] for number in range(len(selections)))
    finally:
        over.set()


def _taken(news: _News, tick: float | None, together: float) -> Iterator[tuple[int, Found | Exception]]:
    """Return the changes that have arrived, with those that follow shortly."""
    with contextlib.suppress(queue.Empty):
        yield news.get(timeout=tick)
        end = time.monotonic() + together
        while together:
            yield news.get(timeout=max(0.0, end - time.monotonic()))


def _follow_into(news: _News, over: threading.Event, api: KubernetesApi, number: int, selection: Selection) -> None:
    last: Sequence[Object] = ()

    def broken(error: TFClusterError) -> None:
        if over.is_set():
            raise error
        news.put((number, Found(last, trouble=error)))

    try:
        for last in follow(api, selection, broken=broken):
            if over.is_set():
                return
            news.put((number, Found(last)))
    except TFClusterError as error:
        news.put((number, Found(last, refused=error)))
    except Exception as error:  # noqa: BLE001 - who reads the queue must learn that nothing comes any more
        news.put((number, error))
