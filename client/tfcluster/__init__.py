"""TFClusters from a shell and from Python: the command ``tfcluster`` and its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcluster.client import Client, RunningCluster
    from tfcluster.cluster_status import ClusterStatus
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
    from tfcluster.manifest.python import (
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
    from tfcluster.tasks import NoTaskError

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


def __getattr__(name: str) -> Any:
    # Imported on first use, so that a command's help or an error does not wait for the client's libraries.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - likewise

    modules = (import_module(f"{__name__}.{module}") for module in ("errors", "tasks", "manifest.python", "client"))
    return next(getattr(module, name) for module in modules if hasattr(module, name))
