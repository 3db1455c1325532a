"""TFClusters from a shell and from Python: the command ``tfcluster`` and its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcluster.client import Client
    from tfcluster.declaration import (
        Colocate,
        Gang,
        Isolation,
        Job,
        Resolver,
        Spread,
        SuccessPolicy,
        TFCluster,
        UpdateStrategy,
    )
    from tfcluster.errors import (
        ClusterFailedError,
        ConflictError,
        ManifestError,
        NoClusterError,
        NotFoundError,
        NotRunningError,
        RefusedError,
        TFClusterError,
        UnreachableError,
        WaitTimeoutError,
    )
    from tfcluster.live_cluster import ClusterStatus, RunningCluster
    from tfcluster.task_names import NoTaskError

__all__ = [
    "Client",
    "ClusterFailedError",
    "ClusterStatus",
    "Colocate",
    "ConflictError",
    "Gang",
    "Isolation",
    "Job",
    "ManifestError",
    "NoClusterError",
    "NoTaskError",
    "NotFoundError",
    "NotRunningError",
    "RefusedError",
    "Resolver",
    "RunningCluster",
    "Spread",
    "SuccessPolicy",
    "TFCluster",
    "TFClusterError",
    "UnreachableError",
    "UpdateStrategy",
    "WaitTimeoutError",
]

_MODULES = {
    "client": ("Client",),
    "declaration": (
        "Colocate",
        "Gang",
        "Isolation",
        "Job",
        "Resolver",
        "Spread",
        "SuccessPolicy",
        "TFCluster",
        "UpdateStrategy",
    ),
    "live_cluster": ("ClusterStatus", "RunningCluster"),
    "task_names": ("NoTaskError",),
}


def __getattr__(name: str) -> Any:
    # NB: whoever asks for a command's help, or for an error, must not wait for the libraries of the client.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - likewise

    module = next((module for module, names in _MODULES.items() if name in names), "errors")
    return getattr(import_module(f"{__name__}.{module}"), name)
