"""Following one TFCluster, or all objects that match: what is there now, and at each change, whatever breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from tfcluster.errors import RefusedError, TFClusterError, UnreachableError
from tfcluster.kubernetes_api import TFCLUSTERS, KubernetesApi, Object, Resource

#: A watch lasts so long at the most, in seconds; then the objects are listed again: a connection may die unseen.
_WATCH: Final = 60.0
#: The pauses after a failure, in seconds: the first, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_EXPIRED: Final = 410


def follow_one(
    api: KubernetesApi, name: str, namespace: str | None = None, *, until: float = float("inf")
) -> Iterator[Object | None]:
    """Give a TFCluster now and at each change.

    Raises:
        RefusedError: the API server said no at the first time.
        UnreachableError: no API server answered at the first time.
    """
    for found in follow(api, TFCLUSTERS, namespace, fields=f"metadata.name={name}", until=until):
        yield next(iter(found.values()), None)


def follow(
    api: KubernetesApi,
    resource: Resource,
    namespace: str | None = None,
    *,
    labels: str = "",
    fields: str = "",
    until: float = float("inf"),
    broken: Callable[[TFClusterError], object] = lambda _: None,
) -> Iterator[dict[tuple[str, str], Object]]:
    """Give all objects that match, now and at each change.

    Args:
        api: the connection.
        resource: their kind.
        namespace: as in ``KubernetesApi.list``.
        labels: a label selector.
        fields: a field selector.
        until: when to end, by ``time.monotonic()``.
        broken: is told what went wrong if that is tried again; until the next objects come, the last ones may be old.

    Raises:
        RefusedError: the API server said no at the first time, or later for another reason than being busy.
        UnreachableError: no API server answered at the first time.
    """
    found: dict[tuple[str, str], Object] = {}
    known, pause = False, _FIRST_PAUSE
    while True:
        try:
            listed = api.list(resource, namespace, labels=labels, fields=fields)
            found.clear()
            found.update({_key(one): one for one in listed})
            yield found
            known, pause = True, _FIRST_PAUSE
            if (left := until - time.monotonic()) > 0:
                changes = api.watch(
                    resource,
                    namespace,
                    labels=labels,
                    fields=fields,
                    since=listed.version,
                    seconds=min(_WATCH, left),
                )
                for kind, body in changes:
                    if kind == "DELETED":
                        found.pop(_key(body), None)
                    else:
                        found[_key(body)] = body
                    yield found
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
    """Tell whether another try is in vain: not where a version is too old, nor where the server has no room."""
    return isinstance(error, RefusedError) and error.status < 500 and error.status not in {_EXPIRED, 429}


def _key(body: Object) -> tuple[str, str]:
    return str(body["metadata"].get("namespace", "")), str(body["metadata"]["name"])
