"""The errors of the resolver.

Each message says which file, task or call is wrong, what is wrong with it, and what to do.  This module holds no
decisions.

The tree (in brackets the standard exception that it also is)::

    TFClusterError
     ├── ViewError                       the mounted view cannot be used
     │    ├── ViewNotFoundError          [FileNotFoundError]
     │    ├── ViewUnreadableError        [OSError]
     │    ├── MalformedViewError         [ValueError]
     │    └── UnsupportedViewError       [ValueError] written by a newer operator
     ├── TaskIdentityError               [ValueError] TFCLUSTER_JOB, _TASK_INDEX or _ADDRESS is wrong
     ├── NoSuchTaskError                 [ValueError] the view does not show that task
     ├── TensorFlowNotFoundError         [ImportError] the call needs TensorFlow
     ├── ConnectError                    the cluster cannot be connected to
     │    ├── CoordinatorNotInClusterError
     │    ├── AddressError               [ValueError] an address is no "host:port"
     │    ├── TasksUnreachableError      [TimeoutError] with .missing, each task and its cause
     │    └── ClusterChangedError        this process is connected to another ClusterSpec
     └── ServeError                      the task server cannot start
          └── PortTakenError
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfcluster_resolver.reachability import MissingTask


class TFClusterError(Exception):
    """What every error of this package is."""


class ViewError(TFClusterError):
    """The mounted view cannot be used."""


class ViewNotFoundError(ViewError, FileNotFoundError):
    """There is no view where it should be mounted."""


class ViewUnreadableError(ViewError, OSError):
    """The view is there, and the operating system does not let this process read it."""


class MalformedViewError(ViewError, ValueError):
    """The file is not a view: the message names the place in it."""


class UnsupportedViewError(ViewError, ValueError):
    """The view was written by an operator newer than this package."""


class TaskIdentityError(TFClusterError, ValueError):
    """The environment that names this pod's own task is incomplete or wrong."""


class NoSuchTaskError(TFClusterError, ValueError):
    """The task is not in the view: it does not exist, or this task's device filters hide it."""


class TensorFlowNotFoundError(TFClusterError, ImportError):
    """The call needs TensorFlow, and this Python has none."""


class ConnectError(TFClusterError):
    """The cluster cannot be connected to."""


class CoordinatorNotInClusterError(ConnectError):
    """The connecting process is no task of the ClusterSpec, so the other tasks could not reach it."""


class AddressError(ConnectError, ValueError):
    """An address is not of the form "host:port"."""


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


class ServeError(TFClusterError):
    """The task server cannot start."""


class PortTakenError(ServeError):
    """Another process of this pod listens on the task's port."""
