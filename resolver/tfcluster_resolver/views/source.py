"""Where a resolver's view comes from, and the sources that never change.

It decides what a source must be able to do, and how a ClusterSpec that somebody wrote down becomes a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tfcluster_resolver import contract
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.device_filters import ClusterDeviceFilters
from tfcluster_resolver.views.watch import Notice


class ViewSource(Protocol):
    """Where a resolver's view comes from."""

    def view(self) -> contract.View:
        """Give the view as it is now."""

    def notice(self) -> Notice | None:
        """Give what tells that the view may have changed; None where it never changes."""


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

    Returns:
        A view without a name, at epoch 0.

    Raises:
        TypeError: an argument is none of these, or an address or filter is no text.
        ValueError: a task index is no number of 0 or more.
    """
    jobs = ClusterSpec(ClusterSpec(_as_dict(cluster))).as_dict()
    return contract.View(
        name="",
        namespace="",
        uid="",
        epoch=0,
        rpc_layer=rpc_layer,
        jobs={job: tuple(tasks) if isinstance(tasks, list) else dict(tasks) for job, tasks in jobs.items()},
        device_filters={
            job: tuple(contract.FilterRange(index, index + 1, texts) for index, texts in sorted(tasks.items()) if texts)
            for job, tasks in filters_by_task(device_filters).items()
        },
    )


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


def filters_by_task(declared: Any) -> dict[str, dict[int, tuple[str, ...]]]:
    """Read device filters, in whatever form, and refuse what TensorFlow could not use.

    Args:
        declared: ClusterDeviceFilters of ours or TensorFlow's, their protobuf message, a mapping from job to a mapping
            from index to a list of filters, or None.

    Returns:
        The filters of each job's tasks.

    Raises:
        TypeError: it is none of these, or a filter is no text.
        ValueError: an index is below 0, or TensorFlow could not read a filter.
    """
    if declared is None:
        return {}
    if not isinstance(declared, ClusterDeviceFilters):
        declared = _read(declared)
    return {job: {index: tuple(texts) for index, texts in tasks.items()} for job, tasks in declared.as_dict().items()}


def filters_in_message(message: Any) -> dict[str, dict[int, tuple[str, ...]]]:
    """Read TensorFlow's protobuf message of device filters, as it is."""
    return {job.name: {index: tuple(one.device_filters) for index, one in job.tasks.items()} for job in message.jobs}


def _read(declared: Any) -> ClusterDeviceFilters:
    if hasattr(declared, "_as_cluster_device_filters"):
        declared = declared._as_cluster_device_filters()  # noqa: SLF001 - TensorFlow has no public way to read them
    if hasattr(declared, "SerializeToString"):
        declared = filters_in_message(declared)
    if not isinstance(declared, Mapping):
        raise TypeError(
            "device filters are a ClusterDeviceFilters, or a mapping from job to a mapping from index to a list of "
            f"filters, not {type(declared).__name__}"
        )
    filters = ClusterDeviceFilters()
    for job, tasks in declared.items():
        if not isinstance(tasks, Mapping):
            raise TypeError(f"the device filters of job {job!r} map task indices to lists, not {type(tasks).__name__}")
        for index, texts in tasks.items():
            filters.set_device_filters(job, index, texts)
    return filters
