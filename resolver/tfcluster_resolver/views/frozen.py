"""Views that never change: that of a snapshot, and that of a ClusterSpec which somebody wrote down.

It decides how what ``tf.train.ClusterSpec`` takes becomes a view.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.device_filters import filters_by_task
from tfcluster_resolver.errors import ArgumentTypeError, ArgumentValueError, TFClusterError
from tfcluster_resolver.views.source import ViewSource


@dataclass(frozen=True, slots=True)
class FrozenView:
    """The view of one moment.

    Attributes:
        frozen: the view.
        live: the source that it came from, which goes on; None for a view that was only written down.
    """

    frozen: contract.View
    live: ViewSource | None = None

    def view(self) -> contract.View:
        """Give the same view for ever."""
        return self.frozen

    def notice(self) -> None:
        """Tell that it never changes."""


def view_of(cluster: Any, *, rpc_layer: str, device_filters: Any) -> contract.View:
    """Make a view of a ClusterSpec that somebody wrote down.

    Args:
        cluster: a dict as ``tf.train.ClusterSpec`` takes it, a ClusterSpec of ours or TensorFlow's, or a ClusterDef.
        rpc_layer: TensorFlow's rpc layer.
        device_filters: ClusterDeviceFilters of ours or TensorFlow's, their protobuf message, a mapping from job to a
            mapping from index to a list of filters, or None.

    Raises:
        ArgumentTypeError: an argument is none of these, or an address or filter is no text.
        ArgumentValueError: a task index is no number of 0 or more, or a text is not Unicode.
        DeviceNameError: TensorFlow could not read a filter.
    """
    rpc_layer = _arguments.text(rpc_layer, "rpc_layer")
    with _as_arguments():
        jobs = ClusterSpec(ClusterSpec(_as_dict(cluster))).as_dict()
        filters = filters_by_task(device_filters)
    return contract.View(
        name="",
        namespace="",
        uid="",
        epoch=0,
        rpc_layer=rpc_layer,
        jobs={job: tuple(tasks) if isinstance(tasks, list) else dict(tasks) for job, tasks in jobs.items()},
        device_filters={
            job: tuple(contract.FilterRange(index, index + 1, texts) for index, texts in sorted(tasks.items()) if texts)
            for job, tasks in filters.items()
        },
    )


@contextmanager
def _as_arguments() -> Iterator[None]:
    """Turn what the stand-ins for TensorFlow's classes raise, as TensorFlow does, into errors of ours."""
    try:
        yield
    except TFClusterError:
        raise
    except TypeError as error:
        raise ArgumentTypeError(str(error)) from error
    except (ValueError, OverflowError) as error:
        raise ArgumentValueError(str(error)) from error


def _as_dict(cluster: Any) -> dict[Any, Any]:
    if hasattr(cluster, "as_dict"):
        cluster = cluster.as_dict()
    elif hasattr(cluster, "job") and hasattr(cluster, "SerializeToString"):
        cluster = {job.name: dict(job.tasks) for job in cluster.job}
    if not isinstance(cluster, dict):
        raise TypeError(
            "a cluster is a dict of job names to tasks, a ClusterSpec or a ClusterDef, "
            f"not {type(cluster).__name__}: {cluster!r}"
        )
    return cluster
