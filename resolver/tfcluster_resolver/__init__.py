"""TensorFlow clusters on Kubernetes, as seen from inside a pod.

The operator mounts a view of the cluster into each task's pod; this package reads it and tells TensorFlow::

    from tfcluster_resolver import TFClusterResolver, connect_to_cluster

    cluster = TFClusterResolver().snapshot()
    connect_to_cluster(cluster)

What it raises is in :mod:`tfcluster_resolver.errors`, and every error is a ``TFClusterError``.  Importing the package
imports only the standard library; each name below is loaded when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tfcluster_resolver import errors
    from tfcluster_resolver.cluster import Membership, Task
    from tfcluster_resolver.cluster_spec import ClusterSpec
    from tfcluster_resolver.commands.serve import serve
    from tfcluster_resolver.commands.tf_config import tf_config
    from tfcluster_resolver.connect import connect_to_cluster
    from tfcluster_resolver.device_filters import ClusterDeviceFilters, device_filter_matches
    from tfcluster_resolver.elastic import Change, Following, Refusal, follow, resize
    from tfcluster_resolver.elastic.restart import RestartOnResize
    from tfcluster_resolver.errors import MissingTask
    from tfcluster_resolver.resolver import NewEpoch, TFClusterResolver
    from tfcluster_resolver.waiting import wait

__version__: Final = "0.1.0"

__all__ = [
    "Change",
    "ClusterDeviceFilters",
    "ClusterSpec",
    "Following",
    "Membership",
    "MissingTask",
    "NewEpoch",
    "Refusal",
    "RestartOnResize",
    "TFClusterResolver",
    "Task",
    "__version__",
    "connect_to_cluster",
    "device_filter_matches",
    "errors",
    "follow",
    "resize",
    "serve",
    "tf_config",
    "wait",
]

#: The names of each module.
_MODULES: Final = {
    "resolver": ("TFClusterResolver", "NewEpoch"),
    "connect": ("connect_to_cluster",),
    "elastic": ("follow", "resize", "Following", "Change", "Refusal"),
    "elastic.restart": ("RestartOnResize",),
    "waiting": ("wait",),
    "commands.serve": ("serve",),
    "commands.tf_config": ("tf_config",),
    "cluster_spec": ("ClusterSpec",),
    "device_filters": ("ClusterDeviceFilters", "device_filter_matches"),
    "cluster": ("Membership", "Task"),
    "errors": ("MissingTask",),
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module(f"{__name__}.errors")
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
