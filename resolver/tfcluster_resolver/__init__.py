"""TensorFlow clusters on Kubernetes, as seen from inside a pod.

The operator mounts a view of the cluster into each task's pod; this package reads it and tells TensorFlow::

    from tfcluster_resolver import TFClusterResolver, connect_to_cluster

    cluster = TFClusterResolver().snapshot()
    connect_to_cluster(cluster)

What it raises is in :mod:`tfcluster_resolver.errors`, and every error is a ``TFClusterError``.  Importing the package
imports neither TensorFlow nor anything else but the standard library; each name below is loaded when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tfcluster_resolver import errors
    from tfcluster_resolver.cluster import Membership, NewEpoch, Task
    from tfcluster_resolver.cluster_spec import ClusterSpec
    from tfcluster_resolver.commands.serve import serve
    from tfcluster_resolver.commands.tf_config import tf_config
    from tfcluster_resolver.connect import connect_to_cluster
    from tfcluster_resolver.device_filters import ClusterDeviceFilters, device_filter_matches
    from tfcluster_resolver.elastic import Change, Following, Refusal, follow, resize
    from tfcluster_resolver.elastic.restart import RestartOnResize
    from tfcluster_resolver.resolver import TFClusterResolver
    from tfcluster_resolver.waiting import wait
    from tfcluster_resolver.waiting.reachability import MissingTask

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

#: Where each name is, in the order in which one needs them.
_MODULES: Final = {
    "TFClusterResolver": "resolver",
    "connect_to_cluster": "connect",
    "follow": "elastic",
    "resize": "elastic",
    "wait": "waiting",
    "RestartOnResize": "elastic.restart",
    "serve": "commands.serve",
    "tf_config": "commands.tf_config",
    "ClusterSpec": "cluster_spec",
    "ClusterDeviceFilters": "device_filters",
    "device_filter_matches": "device_filters",
    # What these give, for annotations.
    "Change": "elastic",
    "Following": "elastic",
    "Refusal": "elastic",
    "Membership": "cluster",
    "NewEpoch": "cluster",
    "Task": "cluster",
    "MissingTask": "waiting.reachability",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module(f"{__name__}.errors")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
