"""The per-worker values of a ClusterCoordinator: datasets, iterators, tables and variables, one for each worker.

A container of them has a value for every worker at any time, also for those that come later: built by the same function
as the first worker's.
"""

# ruff: noqa: SLF001 - TensorFlow's own parts are what it is about

from __future__ import annotations

import copy
import functools
import gc
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

from tfcluster_resolver._tensorflow import private

_tf: Final[Any] = private.coordinator_module

#: Held while workers are added or removed, and while per-worker values are created.
changing: Final = threading.RLock()
_clusters: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_containers: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def track(cluster: Any) -> None:
    """Follow the per-worker values of a cluster: existing and future ones."""
    with changing:
        _clusters.add(cluster)
        original = _tf.PerWorkerValues.__init__
        if hasattr(original, "__wrapped__"):
            return

        @functools.wraps(original)
        def init(container: Any, values: Sequence[Any]) -> None:
            with changing:
                original(container, values)
                _containers.add(container)
                _complete(container)

        _tf.PerWorkerValues.__init__ = init
        for one in gc.get_objects():
            if issubclass(type(one), _tf.PerWorkerValues) and "_values" in vars(one):
                _containers.add(one)


def _of(cluster: Any) -> tuple[dict[int, Any], list[Any]]:
    """Return the values of a cluster's first worker, by identity and in creation order, and their containers."""
    firsts = {id(value): value for ref in cluster.workers[0]._resource_remote_value_refs if (value := ref())}
    return firsts, [one for one in _containers if one._values and id(one._values[0]) in firsts]


def _complete(container: Any) -> None:
    """Add the values of workers that were added while a container was being created."""
    for cluster in _clusters:
        _, mine = _of(cluster)
        count = len(container._values)
        if not any(one is container for one in mine) or count >= len(cluster.workers):
            continue
        twin = next((one for one in mine if one._values[0] is container._values[0] and len(one._values) > count), None)
        if twin is not None:
            container._values = twin._values
            continue
        first = container._values[0]
        for worker in cluster.workers[count:]:
            sibling = worker._register_and_schedule_resource_closure(_same_closure(first))
            sibling._type_spec = first._type_spec
            container._values += (sibling,)


def grow(cluster: Any, index: int) -> list[Any]:
    """Add a worker's values to every container, and return them in build order."""
    firsts, mine = _of(cluster)
    wanted = {id(one._values[0]) for one in mine}
    made = {}
    for key, first in firsts.items():
        if key in wanted:
            made[key] = _same_closure(first).build_output_remote_value()
            made[key]._type_spec = first._type_spec
    for one in mine:
        one._values = (*one._values[:index], made[id(one._values[0])])
    return list(made.values())


def shrink(cluster: Any, count: int) -> list[Any]:
    """Take the values of the workers from an index on out of every container, and return them."""
    _, mine = _of(cluster)
    dropped = [one._values[count:] for one in mine]
    for one in mine:
        one._values = one._values[:count]
    return dropped


def _same_closure(value: Any) -> Any:
    """Copy the closure of a value, to build the same for another worker."""
    closure = copy.copy(value._closure)
    closure._output_remote_value_ref = None
    return closure
