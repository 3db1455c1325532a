"""TensorFlow clusters on Kubernetes, as seen from inside a pod.

The operator mounts a view of the cluster into each task's pod; this package reads it and tells TensorFlow.  Importing
it imports neither TensorFlow nor anything else but the standard library, and each name below is loaded when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tfcluster_resolver.cluster import NewEpoch
    from tfcluster_resolver.cluster_spec import ClusterSpec
    from tfcluster_resolver.connect import connect_to_cluster
    from tfcluster_resolver.device_filters import ClusterDeviceFilters
    from tfcluster_resolver.device_names import device_filter_matches
    from tfcluster_resolver.elastic import Change, Refusal, resize
    from tfcluster_resolver.errors import (
        AcceleratorMismatchWarning,
        AddressError,
        ClusterChangedError,
        ConnectedTooLateError,
        ConnectError,
        CoordinatorNotInClusterError,
        DeviceFilterError,
        DeviceNameError,
        DeviceScopeError,
        KubernetesClientNotFoundError,
        KubernetesConfigurationError,
        KubernetesError,
        KubernetesRightsError,
        KubernetesUnreachableError,
        MalformedViewError,
        NoSuchClusterError,
        NoSuchTaskError,
        NotPublishedError,
        PortTakenError,
        ProtobufNotFoundError,
        ResizeError,
        RestartNeededError,
        ServeError,
        TaskIdentityError,
        TasksBusyError,
        TasksUnreachableError,
        TensorFlowNotFoundError,
        TFClusterError,
        UnsupportedViewError,
        ViewError,
        ViewNotFoundError,
        ViewUnreadableError,
    )
    from tfcluster_resolver.resolver import TFClusterResolver

__version__: Final = "0.1.0"

__all__ = [
    "AcceleratorMismatchWarning",
    "AddressError",
    "Change",
    "ClusterChangedError",
    "ClusterDeviceFilters",
    "ClusterSpec",
    "ConnectError",
    "ConnectedTooLateError",
    "CoordinatorNotInClusterError",
    "DeviceFilterError",
    "DeviceNameError",
    "DeviceScopeError",
    "KubernetesClientNotFoundError",
    "KubernetesConfigurationError",
    "KubernetesError",
    "KubernetesRightsError",
    "KubernetesUnreachableError",
    "MalformedViewError",
    "NewEpoch",
    "NoSuchClusterError",
    "NoSuchTaskError",
    "NotPublishedError",
    "PortTakenError",
    "ProtobufNotFoundError",
    "Refusal",
    "ResizeError",
    "RestartNeededError",
    "ServeError",
    "TFClusterError",
    "TFClusterResolver",
    "TaskIdentityError",
    "TasksBusyError",
    "TasksUnreachableError",
    "TensorFlowNotFoundError",
    "UnsupportedViewError",
    "ViewError",
    "ViewNotFoundError",
    "ViewUnreadableError",
    "__version__",
    "connect_to_cluster",
    "device_filter_matches",
    "resize",
]

#: The module of each name that is not an error.
_MODULES: Final = {
    "Change": "elastic",
    "ClusterDeviceFilters": "device_filters",
    "ClusterSpec": "cluster_spec",
    "NewEpoch": "cluster",
    "Refusal": "elastic",
    "TFClusterResolver": "resolver",
    "connect_to_cluster": "connect",
    "device_filter_matches": "device_names",
    "resize": "elastic",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
