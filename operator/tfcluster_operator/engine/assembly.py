"""How the parts are put together: informers and TFCluster events mark keys, the queue reconciles them."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler
from tfcluster_operator.declaration.parse import is_ours
from tfcluster_operator.engine.journal import Journal
from tfcluster_operator.engine.reconcile import Reconciler
from tfcluster_operator.engine.work_queue import WorkQueue
from tfcluster_operator.kube.client import Client, HistoryLostError, KubeError
from tfcluster_operator.kube.clusters import Census, Key, Parents
from tfcluster_operator.kube.execute import Executor
from tfcluster_operator.kube.informer import Informer
from tfcluster_operator.kube.metrics import Figures, Metrics
from tfcluster_operator.kube.store import Name, Stores
from tfcluster_operator.objects.config_map import ConfigMap, ResolverArchive
from tfcluster_operator.objects.kinds import kinds_for
from tfcluster_operator.report.conditions import CONDITION_TYPES, WAITS, by_type
from tfcluster_operator.report.status import Waiting, tasks_of, waiting

_log = logging.getLogger(__name__)

_CLUSTERS_AT_ONCE: Final = 32
#: Another replica that led recently might have created its version's ConfigMap, but not yet the pods that mount it.
_SWEEP_EVERY: Final = 3600.0
#: Seconds until a TFCluster is looked at again whose objects cannot be listed yet.
_LOOK_FOR_LISTS_AGAIN: Final = 5.0


class Engine:
    """All components but kopf; a scope (a namespace, or all) is reconciled as soon as its own lists are complete."""

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str],
        archive: ResolverArchive,
        *,
        gang_scheduler: GangScheduler = KUBERNETES,
        metrics: Metrics | None = None,
    ) -> None:
        self._wall = client.clock.wall
        journal = Journal(metrics or Metrics())
        self._parents = Parents(client)
        self._stores = Stores(self._child_changed, client.clock.wall)
        kinds = kinds_for(gang_scheduler)
        self._executor = Executor(client, self._stores, archive, kinds)
        self._resolver = naming.resolver_name(archive.digest)
        self._reconciler = Reconciler(
            client, self._parents, self._stores, self._executor, journal=journal, gang_scheduler=gang_scheduler
        )
        self._queue = WorkQueue(self._reconcile, clock=client.clock.elapsed, took=journal.pass_took)
        self._scopes: Sequence[str | None] = namespaces or [None]
        self.informers = [
            Informer(client, kind, self._stores.of[kind.name], scope)
            for kind in kinds.values()
            for scope in ([None] if kind.cluster_wide else self._scopes)
        ]
        self._synced: set[str | None] = set()

    def figures(self) -> Figures:
        """Compute the gauges, which only a leader keeps up to date: a few look-ups per cluster, and none per pod."""
        # Times from the API server or an earlier operator can be in the future, so the oldest ones begin at 0.
        found, now = Figures(*self._queue.overdue()), self._wall()
        for key, body in self._parents.bodies.items():
            if not is_ours(body):
                continue
            status, account = self._reconciler.report_of(key)
            told = by_type(status)
            found.conditions.update((kind, told.get(kind, {}).get("status", "Unknown")) for kind in CONDITION_TYPES)
            match waiting(body, status, account.placed_at):
                case Waiting(reason, since) if reason in WAITS:
                    found.waiting[reason,] += 1
                    found.waiting_oldest[reason,] = max(found.waiting_oldest.get((reason,), 0.0), now - since)
                case Waiting(reason, since):
                    found.not_ready[reason,] += 1
                    found.not_ready_oldest = max(found.not_ready_oldest, now - since)
            found.tasks.update(tasks_of(status))
        return found

    async def run(self, lead: asyncio.Event) -> None:
        """Run forever: fill the caches immediately, and reconcile clusters while this replica leads."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for informer in self.informers:
                    tasks.create_task(informer.run())
                for scope in self._scopes:
                    tasks.create_task(self._open(scope))
                await lead.wait()
                tasks.create_task(self._queue.run(_CLUSTERS_AT_ONCE))
                tasks.create_task(self._sweep())
        except* HistoryLostError as lost:
            raise lost.exceptions[0] from None

    async def _open(self, scope: str | None) -> None:
        for informer in self.informers:
            if informer.namespace in {scope, None}:
                await informer.synced.wait()
        _log.info("the lists of %s are in", f"namespace {scope}" if scope else "all namespaces")
        self._synced.add(scope)
        for key in self._parents.bodies:
            if self._scope_of(key[0]) == scope:
                self._queue.mark(key, urgent=True)

    def _scope_of(self, namespace: str) -> str | None:
        return namespace if namespace in self._scopes else None

    async def _reconcile(self, key: Key) -> float | None:
        if (scope := self._scope_of(key[0])) in self._synced:
            return await self._reconciler.reconcile(key)
        # Objects that are not listed yet would seem to be missing.
        if refused := [one.refused for one in self.informers if one.refused and one.namespace in {scope, None}]:
            await self._reconciler.reconcile(key, blind=f"the operator cannot list what it watches: {refused[0]}")
        return _LOOK_FOR_LISTS_AGAIN

    def cluster_event(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Process an event of a TFCluster."""
        metadata = body["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if kind == "DELETED":
            self._parents.bury(metadata["uid"])
            self._remove(key, metadata["uid"])
        elif self._parents.put(body):
            self._queue.mark(key, urgent=True, ahead=self._reconciler.heard_of(key, metadata["uid"]))

    def clusters_listed(self, namespace: str | None, counted: Census) -> None:
        """Process a list of the TFClusters: others that were known before were deleted while the watch was down."""
        for key, body in list(self._parents.bodies.items()):
            uid, version = body["metadata"]["uid"], int(body["metadata"]["resourceVersion"])
            if version <= counted.version and uid not in counted.uids and namespace in {None, key[0]}:
                _log.info("TFCluster %s/%s vanished while its watch was down", *key)
                self._remove(key, uid)

    def _remove(self, key: Key, uid: str) -> None:
        self._parents.remove(key, uid)
        self._queue.forget(key)
        self._queue.mark(key)

    def _child_changed(self, owner: Name, left: bool) -> None:
        if owner in self._parents.bodies:
            self._queue.mark(owner, ahead=left)
        elif not owner[1]:
            # Another owner's NetworkPolicy, or the namespace's resolver: every cluster there depends on it.
            for key in self._parents.bodies:
                if key[0] == owner[0]:
                    self._queue.mark(key)

    async def _sweep(self) -> None:
        """Delete, once an hour, the resolver ConfigMaps that pods no longer mount; all TFClusters share them."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY)
            for copy in self._unused_copies():
                # It might have become needed while another one was deleted.
                if copy not in self._unused_copies():
                    continue
                name = f"{copy.meta.namespace}/{copy.meta.name}"
                try:
                    await self._executor.delete_copy(copy)
                except KubeError as error:
                    _log.warning("ConfigMap %s stays, though no pod mounts it: %s", name, error)
                else:
                    _log.info("deleted ConfigMap %s: no pod mounts it", name)

    def _unused_copies(self) -> list[ConfigMap]:
        needing = {namespace for (namespace, _), body in self._parents.bodies.items() if is_ours(body)}
        unused = self._stores.unused_copies(self._resolver, needing)
        return [one for one in unused if self._scope_of(one.meta.namespace) in self._synced]
