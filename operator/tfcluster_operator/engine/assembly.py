"""How the parts are put together: informers and TFCluster events mark keys, the queue reconciles them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster_operator.engine.reconcile import Reconciler
from tfcluster_operator.engine.work_queue import WorkQueue
from tfcluster_operator.kube import errors, wire
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.informer import Informer
from tfcluster_operator.kube.parents import Key, Parents
from tfcluster_operator.kube.store import Name, Stores
from tfcluster_operator.manifests.resolver_archive import ResolverArchive

_log = logging.getLogger(__name__)

_CLUSTERS_AT_ONCE: Final = 32
#: After kopf's watch starts anew (its events then carry no type) it takes this long until all have come.
_SETTLE: Final = 2.0
#: And this often anyway, in seconds: when every TFCluster has vanished in a gap, no event tells of it.
_SWEEP_EVERY: Final = 300.0


class Engine:
    """Everything that runs beside kopf.

    Args:
        client: the requests.
        namespaces: the namespaces to work in; none means all.
        archive: the resolver as it is delivered into the pods.
    """

    def __init__(self, client: Client, namespaces: Sequence[str], archive: ResolverArchive) -> None:
        self._parents = Parents(client)
        self._stores = Stores(self._child_changed)
        self._reconciler = Reconciler(client, self._parents, self._stores, archive)
        self._queue: WorkQueue[Key] = WorkQueue(self._reconciler.reconcile, clock=client.clock.elapsed)
        self._scopes: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._listed_anew = asyncio.Event()
        #: Set when the TFClusters can be listed: the CRD is there and the rights are.
        self.ready = asyncio.Event()
        self.informers = tuple(
            Informer(client, resource, self._stores.of[resource.kind], scope)
            for scope in self._scopes
            for resource in wire.RESOURCES.values()
        )

    async def run(self) -> None:
        """Run for ever; nothing is reconciled before every list is in, because absence would be misread."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers:
                tasks.create_task(informer.run())
            for informer in self.informers:
                await informer.synced.wait()
            await self._await_parents()
            _log.info("the lists are in; reconciling")
            tasks.create_task(self._queue.run(_CLUSTERS_AT_ONCE))
            tasks.create_task(self._sweep())

    async def _await_parents(self) -> None:
        while not self.ready.is_set():
            try:
                await self._uids()
                self.ready.set()
            except errors.KubeError as error:
                _log.warning("listing the TFClusters: %s", error)
                await asyncio.sleep(1.0)

    async def _uids(self) -> set[str]:
        return set().union(*[await self._parents.uids(scope) for scope in self._scopes])

    def cluster_event(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Take in an event of a TFCluster.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for an object of a list.
            body: the TFCluster.
        """
        metadata = body["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if kind is None:
            self._listed_anew.set()
        if kind == "DELETED":
            self._parents.remove(key, metadata["uid"])
            self._queue.forget(key)
            self._queue.mark(key)
        elif self._parents.put(body):
            self._reconciler.heard_of(key, metadata["uid"])
            self._queue.mark(key, urgent=True)

    def _child_changed(self, owner_uid: str, labelled: Name) -> None:
        owner = self._parents.key_of(owner_uid)
        if owner is not None:
            self._queue.mark(owner)
        if labelled != owner and self._parents.get(labelled) is not None:
            self._queue.mark(labelled)

    async def _sweep(self) -> None:
        """Take out the TFClusters that vanished while kopf's watch was down: kopf tells nothing of them."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_EVERY):
                    await self._listed_anew.wait()
                    await asyncio.sleep(_SETTLE)
            self._listed_anew.clear()
            known = self._parents.known()
            try:
                alive = await self._uids()
            except errors.KubeError as error:
                _log.warning("sweeping: %s", error)
                self._listed_anew.set()
                continue
            for key, uid in known.items():
                if uid not in alive:
                    _log.info("TFCluster %s/%s vanished while its watch was down", *key)
                    self._parents.remove(key, uid)
                    self._queue.forget(key)
