"""The copies of the resolver that all TFClusters of a namespace share: when one goes, and who quarrels about it.

A cluster's pass makes the copy that its pods need, and puts it back.  It goes in a pass of its own, over the namespace:
the last cluster that needed it may be gone by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tfcluster_operator.engine.work_queue import RetryLater
from tfcluster_operator.kube import errors
from tfcluster_operator.kube.execute import Executor
from tfcluster_operator.kube.parents import Parents
from tfcluster_operator.kube.store import Name, Stores
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
#: Seconds for which a copy of another version must be seen without a pod: an operator that has just ceased to lead may
#: have made one, and our watch of the pods may lag as long as a silent one is believed.  Nobody could make it again.
_SEEN_WITHIN: Final = 90.0
#: What was deleted so often in a row is deleted at once; then the pauses grow, and are forgotten in time (seconds).
_PATIENCE: Final = 3
_LONGEST_TRUCE: Final = 300.0
_FORGOTTEN_AFTER: Final = 60.0

_log = logging.getLogger(__name__)


class ResolverCopies:
    """The copies in every namespace.

    Args:
        parents: the TFClusters.
        stores: what exists.
        executor: who deletes.
        archive: the resolver that new pods get.
        elapsed: seconds, by a clock that never steps.
    """

    def __init__(
        self,
        parents: Parents,
        stores: Stores,
        executor: Executor,
        archive: ResolverArchive,
        *,
        elapsed: Callable[[], float],
    ) -> None:
        self._parents = parents
        self._stores = stores
        self._executor = executor
        self._current = naming.resolver_name(archive.digest)
        self._quarrels: dict[str, dict[str, Quarrel]] = {}
        self._elapsed = elapsed
        #: When a copy that nobody needs may be deleted, and how often it was tried.
        self._due: dict[Name, float] = {}
        self._tried: dict[Name, int] = {}

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
            raise RetryLater(str(error)) from error

    async def _sweep(self, namespace: str) -> float | None:
        if lost := self._stores.lost_copies(namespace):
            for one in lost:
                await self._executor.look_at("ConfigMap", one)
                self._stores.of["ConfigMap"].vanished[""].discard(one)
            # NB: whoever took its labels off may have taken those of the pods that mount it, too.
            return _LOOK_AGAIN
        if (wait := self._wait(namespace)) is None or wait > 0:
            return wait
        if vanished := self._stores.take_vanished_pods(namespace):
            for pod in vanished:
                await self._executor.look_at("Pod", (namespace, pod))
            return _LOOK_AGAIN
        for hidden in self._stores.hidden_pods(namespace):
            await self._executor.look_at("Pod", (namespace, hidden.meta.name))
        for name in [copy.meta.name for copy in self._unneeded(namespace)]:
            # NB: while another copy was deleted, this one may have come to be needed.
            copy = next((one for one in self._unneeded(namespace) if one.meta.name == name), None)
            if copy is not None and self._due[namespace, name] <= self._elapsed():
                await self._delete(copy)
        return None if (wait := self._wait(namespace)) is None else max(wait, _LOOK_AGAIN)

    def _wait(self, namespace: str) -> float | None:
        """Give the seconds until a copy may be deleted, or a deletion is forgotten; None where there is neither."""
        now, idle = self._elapsed(), {one.meta.name for one in self._unneeded(namespace, pods_hidden=False)}
        waits = []
        for name in [name for name in self._due if name[0] == namespace and name[1] not in idle]:
            # NB: somebody may make again what was deleted, so that is remembered for a while.
            left = self._due[name] + _FORGOTTEN_AFTER - now if name in self._tried else 0.0
            if left > 0:
                waits.append(left)
            else:
                del self._due[name]
                self._tried.pop(name, None)
        for one in idle:
            due = self._due.setdefault((namespace, one), now + (0.0 if one == self._current else _SEEN_WITHIN))
            waits.append(due - now)
        return min(waits, default=None)

    async def _delete(self, copy: ObservedConfigMap) -> None:
        name = copy.meta.namespace, copy.meta.name
        tries = self._tried[name] = self._tried.get(name, 0) + 1
        try:
            await self._executor.delete_copy(copy)
        except errors.ApiError as error:
            if isinstance(error, errors.ServerError):
                raise
            self._due[name] = self._elapsed() + _REFUSED
            if tries == 1:
                _log.warning("ConfigMap %s/%s stays, though no pod mounts it: %s", *name, error)
        else:
            # Somebody who makes it again each time is met with growing pauses.
            pause = 0.0 if tries < _PATIENCE else min(_LONGEST_TRUCE, 2.0 ** (tries - _PATIENCE))
            self._due[name] = self._elapsed() + pause
            _log.info("deleted ConfigMap %s/%s: no pod mounts it", *name)

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
