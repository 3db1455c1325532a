"""Deletes, once an hour, the resolver's ConfigMaps that pods no longer mount.

All pods of a namespace mount the same ConfigMap, so no TFCluster owns it.  A reconcile creates and restores it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from tfcluster_operator.declaration.parse import has_resolver_delivered, is_ours
from tfcluster_operator.kube import errors
from tfcluster_operator.kube.clusters import Parents
from tfcluster_operator.kube.execute import Executor
from tfcluster_operator.kube.store import Stores
from tfcluster_operator.objects.config_map import ConfigMap
from tfcluster_operator.objects.resolver_copy import unneeded

#: Another replica that led recently might have created its version's ConfigMap, but not yet the pods that mount it.
_EVERY: Final = 3600.0

_log = logging.getLogger(__name__)


class ResolverSweep:
    """Deletes the resolver's ConfigMaps that are not needed."""

    def __init__(self, parents: Parents, stores: Stores, executor: Executor, current: str) -> None:
        self._parents = parents
        self._stores = stores
        self._executor = executor
        self._current = current

    async def run(self, is_known: Callable[[str], bool]) -> None:
        """Sweep forever."""
        while True:
            await asyncio.sleep(_EVERY)
            for namespace in filter(is_known, self._stores.namespaces_with_copies()):
                for copy in self._unneeded(namespace):
                    # It might have become needed while another one was deleted.
                    if copy in self._unneeded(namespace):
                        await self._delete(copy)

    def _unneeded(self, namespace: str) -> list[ConfigMap]:
        needed = any(
            is_ours(body) and has_resolver_delivered(body) and "deletionTimestamp" not in body["metadata"]
            for body in self._parents.inside(namespace)
        )
        copies = self._stores.copies_in(namespace)
        mounted = [one.meta.name for one in copies if self._stores.is_mounted(one)]
        return unneeded(copies, mounted=mounted, current=self._current, needed=needed)

    async def _delete(self, copy: ConfigMap) -> None:
        name = f"{copy.meta.namespace}/{copy.meta.name}"
        try:
            await self._executor.delete_copy(copy)
        except errors.KubeError as error:
            _log.warning("ConfigMap %s stays, though no pod mounts it: %s", name, error)
        else:
            _log.info("deleted ConfigMap %s: no pod mounts it", name)
