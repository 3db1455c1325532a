"""Keeps a TFCluster and its pods in sight, in threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfcluster.errors import TFClusterError
from tfcluster.following import follow
from tfcluster.kubernetes_api import PODS, TFCLUSTERS, InterruptibleApi, Object, Resource
from tfcluster_operator.declaration import naming


class ClusterWatch:
    """Watches one TFCluster and its pods, through every break of the connection.

    Args:
        api: the connection; whoever made it interrupts it after ``stop``.
        name: the TFCluster's name.
        namespace: its namespace; None is that of the connection.
        changed: called from other threads whenever there is something new.

    Attributes:
        failure: why nothing can be seen any more; None while all is well.
        trouble: why nothing can be seen for now; "" while all is well.
    """

    def __init__(self, api: InterruptibleApi, name: str, namespace: str | None, changed: Callable[[], None]) -> None:
        self.failure: TFClusterError | None = None
        self.trouble = ""
        self._api, self._namespace, self._changed = api, namespace, changed
        self._cluster: Object | None = None
        self._gone = False
        self._pods: dict[str, Object] = {}
        self._departed: list[Object] = []
        self._seen: set[Resource] = set()
        self._troubles: dict[Resource, str] = {}
        self._lock = threading.Lock()
        self._stopped = False
        which = ((TFCLUSTERS, "", f"metadata.name={name}"), (PODS, f"{naming.LABEL_CLUSTER}={name}", ""))
        self._threads = [
            threading.Thread(target=self._follow, args=one, daemon=True, name=f"watch-{one[0].plural}-of-{name}")
            for one in which
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Watch no more, as soon as the connection is interrupted."""
        self._stopped = True

    @property
    def complete(self) -> bool:
        """Whether the TFCluster and its pods have both been looked for."""
        return self._seen >= {TFCLUSTERS, PODS}

    def snapshot(self) -> tuple[Object | None, bool, list[Object]]:
        """Give the TFCluster as it was seen last, whether it is gone since, and its pods."""
        with self._lock:
            return self._cluster, self._gone, list(self._pods.values())

    def departed(self) -> list[Object]:
        """Give the pods that went since this was asked last, as they were seen last."""
        with self._lock:
            gone, self._departed = self._departed, []
            return gone

    def _follow(self, resource: Resource, labels: str, fields: str) -> None:
        def note(error: TFClusterError) -> None:
            self._note(resource, str(error))

        try:
            for found in follow(self._api, resource, self._namespace, labels=labels, fields=fields, broken=note):
                if self._stopped:
                    return
                if self._troubles.get(resource):
                    self._note(resource, "")
                with self._lock:
                    self._take(resource, list(found.values()))
                self._changed()
        except TFClusterError as error:
            self.failure = error
            self._changed()

    def _take(self, resource: Resource, found: list[Object]) -> None:
        self._seen.add(resource)
        if resource is PODS:
            now = {pod["metadata"]["uid"]: pod for pod in found}
            self._departed += [pod for uid, pod in self._pods.items() if uid not in now]
            self._pods = now
        elif self._cluster is None:
            self._cluster = found[0] if found else None
        elif not self._gone:
            # NB: another TFCluster of the name is not the one whose tasks were asked for.
            same = [one for one in found if one["metadata"]["uid"] == self._cluster["metadata"]["uid"]]
            self._cluster, self._gone = (same[0], False) if same else (self._cluster, True)

    def _note(self, resource: Resource, words: str) -> None:
        if self._stopped:
            # NB: the connection was interrupted on purpose: there is nothing to try again.
            raise _StoppedError("stopped")
        self._troubles[resource] = words
        self.trouble = self._troubles.get(PODS) or self._troubles.get(TFCLUSTERS) or ""
        self._changed()


class _StoppedError(TFClusterError):
    """Nobody watches any more."""
