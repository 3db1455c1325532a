"""The copies of the resolver that all TFClusters of a namespace share: when one goes, and who quarrels about it.

A cluster's pass makes the copy that its pods need, and puts it back.  It goes in a pass of its own, over the namespace:
the last cluster that needed it may be gone by then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from tfcluster_operator.engine.work_queue import RetryLater
from tfcluster_operator.kube import errors
from tfcluster_operator.kube.execute import Executor
from tfcluster_operator.kube.parents import Parents
from tfcluster_operator.kube.store import Stores
from tfcluster_operator.manifests.resolver_archive import ResolverArchive
from tfcluster_operator.model import naming
from tfcluster_operator.model.holds import Holds, Quarrel
from tfcluster_operator.model.observed import ObservedConfigMap
from tfcluster_operator.model.parse import has_resolver_delivered, is_ours
from tfcluster_operator.model.resolver_copies import unneeded
from tfcluster_operator.model.spec import TFCluster

#: Seconds until it is looked again what became of a pod that may mount a copy and that no watch shows.
_LOOK_AGAIN: Final = 1.0
#: Seconds until a deletion that was refused is tried again.
_REFUSED: Final = 60.0

_log = logging.getLogger(__name__)


class ResolverCopies:
    """The copies in every namespace.

    Args:
        parents: the TFClusters.
        stores: what exists.
        executor: who deletes.
        archive: the resolver that new pods get.
    """

    def __init__(self, parents: Parents, stores: Stores, executor: Executor, archive: ResolverArchive) -> None:
        self._parents = parents
        self._stores = stores
        self._executor = executor
        self._current = naming.resolver_name(archive.digest)
        self._quarrels: dict[str, dict[str, Quarrel]] = {}

    async def sweep(self, namespace: str) -> float | None:
        """Delete the copies in a namespace that nobody needs any more.

        Args:
            namespace: the namespace; all its TFClusters must be known.

        Returns:
            Seconds until it wants another look, or None where events are enough.

        Raises:
            RetryLater: the API server did not answer, or another operator may lead by now.
        """
        try:
            return await self._sweep(namespace)
        except errors.KubeError as error:
            if not isinstance(error, errors.ApiError) or isinstance(error, errors.ServerError):
                raise RetryLater(str(error)) from error
            _log.warning("copies of the resolver in %s stay for now: %s", namespace, error)
            return _REFUSED

    async def _sweep(self, namespace: str) -> float | None:
        if lost := self._stores.lost_copies(namespace):
            for name in lost:
                await self._executor.look_at("ConfigMap", name)
                self._stores.of["ConfigMap"].vanished[""].discard(name)
            # NB: whoever took its labels off may have taken those of the pods that mount it, too.
            return _LOOK_AGAIN
        if not any(self._unneeded(namespace, pods_hidden=False)):
            return None
        if self._stores.has_vanished("Pod", namespace):
            return _LOOK_AGAIN
        for pod in self._stores.hidden_pods(namespace):
            await self._executor.look_at("Pod", (namespace, pod.meta.name))
        for copy in list(self._unneeded(namespace)):
            await self._executor.delete_copy(copy)
            _log.info("deleted ConfigMap %s/%s: no pod mounts it", namespace, copy.meta.name)
        return _LOOK_AGAIN if any(self._unneeded(namespace, pods_hidden=False)) else None

    def _unneeded(self, namespace: str, *, pods_hidden: bool = True) -> Iterator[ObservedConfigMap]:
        """Give the copies to delete; without the pods that are hidden from our watch, those that may be to delete."""
        needed = any(
            is_ours(body) and has_resolver_delivered(body) and "deletionTimestamp" not in body["metadata"]
            for body in self._parents.inside(namespace)
        )
        mounted = self._stores.mounted_in(namespace, hidden=pods_hidden)
        copies = self._stores.copies_in(namespace).values()
        return unneeded(copies, mounted=mounted, current=self._current, needed=needed)

    def quarrels_in(self, namespace: str) -> Mapping[str, Quarrel]:
        """Give the quarrel about the namespace's copy, if there is one: it is the same for every cluster."""
        return self._quarrels.get(namespace, {})

    def share_quarrel(self, cluster: TFCluster, holds: Holds, now: float) -> None:
        """Take in that a cluster's pass has just repaired the namespace's copy, if it has.

        Args:
            cluster: the cluster.
            holds: what it knows after the pass.
            now: the time at which the pass ended, in seconds since the epoch.
        """
        what = f"ConfigMap {self._current}"
        quarrel = holds.quarrels.get(what)
        if quarrel is not None and quarrel.last == now:
            self._quarrels[cluster.namespace] = {what: quarrel}
