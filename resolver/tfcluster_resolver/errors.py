"""The errors of the resolver.

Each message says which file, task or call is wrong, what is wrong with it, and what to do.  An error is also the
standard exception that fits it, such as a FileNotFoundError.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TFClusterError(Exception):
    """The base of every error of this package."""


class ViewError(TFClusterError):
    """The mounted view cannot be used."""


class ViewNotFoundError(ViewError, FileNotFoundError):
    """The view does not exist where it should be mounted."""


class ViewUnreadableError(ViewError, OSError):
    """The view is there, and the operating system does not let this process read it."""


class MalformedViewError(ViewError, ValueError):
    """The file is not a view: the message names the place in it."""


class UnsupportedViewError(ViewError, ValueError):
    """The view was written by an operator newer than this package."""


class KubernetesError(ViewError):
    """The view cannot be read from the API server."""


class KubernetesClientNotFoundError(KubernetesError, ImportError):
    """The call needs the official Kubernetes client, which is not installed."""


class KubernetesConfigurationError(KubernetesError, ValueError):
    """The configuration of the Kubernetes client is missing or unusable."""


class KubernetesRightsError(KubernetesError, PermissionError):
    """The API server does not let this user read the cluster's views."""


class KubernetesUnreachableError(KubernetesError, ConnectionError):
    """The API server does not answer, or answers with a failure of its own."""


class NoSuchClusterError(KubernetesError, LookupError):
    """The TFCluster does not exist in that namespace."""


class NotPublishedError(KubernetesError):
    """The TFCluster exists, and the operator has not published its views yet."""


class ArgumentError(TFClusterError):
    """A call of this package is given what it does not take; the message names the argument."""

    # Inside a tf.function AutoGraph keeps the class of an error with just this constructor, and hides any other.
    __init__ = Exception.__init__


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument is of another type, or holds something that is."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument is of the right type, and no such value is taken."""


class TaskIdentityError(TFClusterError, ValueError):
    """The environment that names this pod's own task is incomplete or wrong."""


class NoSuchTaskError(TFClusterError, ValueError):
    """The task is not in the view: it does not exist, or this task's device filters hide it."""


class TensorFlowNotFoundError(TFClusterError, ImportError):
    """The call needs TensorFlow, which is not installed."""


class ProtobufNotFoundError(TFClusterError, ImportError):
    """The call needs protobuf, which is not installed or too old."""


class DeviceNameError(TFClusterError, ValueError):
    """TensorFlow cannot read a text as a device name.

    Attributes:
        position: where in the text it is wrong, counted from 0.
    """

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class DeviceFilterError(DeviceNameError):
    """TensorFlow cannot read a text as a device filter."""


class ConnectError(TFClusterError):
    """The cluster cannot be connected to."""


class CoordinatorNotInClusterError(ConnectError):
    """The connecting process is not a task of the ClusterSpec, so the other tasks could not reach it."""


class AddressError(ConnectError, ValueError):
    """An address is not of the form "host:port"."""


class Cause(Enum):
    """Why a task could not be reached, and where to look."""

    UNRESOLVED = "name does not resolve (is there a pod of that name, and does the cluster's DNS answer?)"
    NO_POD = "no pod (its Service's name resolves and its own does not: look at `kubectl get pods` and their events)"
    REFUSED = "connection refused (the pod exists, but nothing listens on the port; look at its log)"
    TIMED_OUT = "timed out (nothing answers: is the pod running, does a NetworkPolicy drop it?)"
    NOT_GRPC = "no gRPC answer (something accepts connections: a server that hangs, a proxy, or another program?)"
    UNREACHABLE = "network error"


@dataclass(frozen=True, slots=True)
class MissingTask:
    """A task that did not answer: its job, index and address, and the cause at the last attempt."""

    job: str
    index: int
    address: str
    cause: Cause

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index} at {self.address}: {self.cause.value}"


class TasksUnreachableError(ConnectError, TimeoutError):
    """Some tasks did not accept a connection in time.

    Attributes:
        missing: the tasks that did not answer, each with its cause, in the order of the ClusterSpec.
    """

    def __init__(self, message: str, missing: tuple[MissingTask, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class ClusterChangedError(ConnectError):
    """This process is connected to another ClusterSpec; tensors and variables that live there would crash it."""


class SnapshotOutdatedError(ClusterChangedError):
    """The cluster no longer has a task of the snapshot, so waiting for the snapshot's tasks is pointless."""


class ConnectedTooLateError(ConnectError):
    """Variables of this process were created before it got another job's name; connecting would break them."""


class DeviceScopeError(ConnectError, ValueError):
    """The master's device cannot become the default inside a ``tf.device`` scope of another task."""


class ResizeError(TFClusterError):
    """The running program cannot follow a change of its cluster."""


class RestartNeededError(ResizeError):
    """Only a restart of the coordinator can follow the change; nothing was changed."""


class TasksBusyError(ResizeError, TimeoutError):
    """A worker did not finish its closure in time, or another resize did not end; nothing was changed."""


class ServeError(TFClusterError):
    """The task server cannot start."""


class PortTakenError(ServeError):
    """Another process of this pod listens on the task's port."""


class AcceleratorMismatchWarning(UserWarning):
    """The view counts other accelerators for this pod than the pod shows."""
