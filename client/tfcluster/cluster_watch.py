"""Keeps a TFCluster and its pods in sight, in threads of its own, through every break of the connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from tfcluster.errors import RefusedError, TFClusterError, UnreachableError
from tfcluster.kubernetes_api import PODS, TFCLUSTERS, KubernetesApi, Object, Resource
from tfcluster_operator.model import naming

#: Seconds that one watch lasts: a connection that died without a word is noticed after them.
_WATCH: Final = 60.0
#: Seconds until a request that failed is made again, the first time and at the most.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0


class ClusterWatch:
    """Watches one TFCluster and its pods.

    Args:
        api: the connection.
        name: the TFCluster's name.
        namespace: its namespace; None is that of the connection.
        changed: called from other threads whenever there is something new.

    Attributes:
        cluster: the TFCluster as it was seen last; None before it was.
        gone: whether it has been deleted since, or replaced by another of its name.
        pods: its pods by their UID.
        failure: why nothing can be seen any more.
        trouble: why nothing can be seen for now; "" when all is well.
    """

    def __init__(
        self, api: KubernetesApi, name: str, namespace: str | None, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.cluster: Object | None = None
        self.gone = False
        self.pods: dict[str, Object] = {}
        self.failure: TFClusterError | None = None
        self.trouble = ""
        self._departed: list[Object] = []
        self._api, self._namespace, self._changed = api, namespace, changed
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._listed: set[Resource] = set()
        named = {"fields": f"metadata.name={name}"}
        labelled = {"labels": f"{naming.LABEL_CLUSTER}={name}"}
        self._threads = [
            threading.Thread(target=self._follow, args=(TFCLUSTERS, named), daemon=True, name=f"watch-{name}"),
            threading.Thread(target=self._follow, args=(PODS, labelled), daemon=True, name=f"watch-pods-of-{name}"),
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Watch no more; the connection must be interrupted, too."""
        self._over.set()

    @property
    def complete(self) -> bool:
        """Whether the TFCluster and its pods have both been seen."""
        return self._listed >= {TFCLUSTERS, PODS}

    def snapshot(self) -> tuple[Object | None, bool, list[Object]]:
        """Give the TFCluster, whether it is gone, and its pods."""
        with self._lock:
            return self.cluster, self.gone, list(self.pods.values())

    def departed(self) -> list[Object]:
        """Give the pods that are gone since this was asked last, as they were at the end."""
        with self._lock:
            gone, self._departed = self._departed, []
            return gone

    def _follow(self, resource: Resource, which: dict[str, str]) -> None:
        since, pause = "", FIRST_PAUSE
        while not self._over.is_set():
            try:
                if not since:
                    listed = self._api.list(resource, self._namespace, **which)
                    self._replace(resource, listed.items)
                    since = listed.version
                self._well()
                began = time.monotonic()
                for kind, found in self._api.watch(
                    resource,
                    self._namespace,
                    **which,
                    since=since,
                    seconds=_WATCH,
                ):
                    since = found["metadata"]["resourceVersion"]
                    self._take(resource, kind, found)
                    pause = FIRST_PAUSE
                if time.monotonic() - began > FIRST_PAUSE:
                    continue
            except UnreachableError as error:
                self._note(str(error))
            except RefusedError as error:
                if error.status in {401, 403, 404, 422}:
                    self._fail(error)
                    return
                since = "" if error.status == 410 else since
                self._note("" if error.status == 410 else str(error))
            self._over.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _replace(self, resource: Resource, items: list[Object]) -> None:
        with self._lock:
            self._listed.add(resource)
            if resource is PODS:
                now = {pod["metadata"]["uid"]: pod for pod in items}
                self._departed += [pod for uid, pod in self.pods.items() if uid not in now]
                self.pods = now
            elif items:
                self._see(items[0])
            else:
                self.gone = self.cluster is not None
        self._changed()

    def _take(self, resource: Resource, kind: str, found: Object) -> None:
        with self._lock:
            if resource is TFCLUSTERS and kind == "DELETED":
                self.gone = True
            elif resource is TFCLUSTERS:
                self._see(found)
            elif kind == "DELETED":
                self.pods.pop(found["metadata"]["uid"], None)
                self._departed.append(found)
            else:
                self.pods[found["metadata"]["uid"]] = found
        self._changed()

    def _see(self, found: Object) -> None:
        if self.cluster is not None and found["metadata"]["uid"] != self.cluster["metadata"]["uid"]:
            self.gone = True
        else:
            self.cluster = found

    def _note(self, trouble: str) -> None:
        if not self._over.is_set():
            self.trouble = trouble
            self._changed()

    def _well(self) -> None:
        if self.trouble:
            self._note("")

    def _fail(self, error: TFClusterError) -> None:
        self.failure = error
        self._changed()
