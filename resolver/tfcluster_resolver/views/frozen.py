"""Views that never change: that of a snapshot, and that of a ClusterSpec which the caller wrote down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.device_filters import filters_by_task
from tfcluster_resolver.errors import ArgumentValueError, TFClusterError
from tfcluster_resolver.views.watch import ViewSource


@dataclass(frozen=True, slots=True)
class FrozenView:
    """The view of one moment, and its source; None for a view from a text."""

    frozen: contract.View
    live: ViewSource | None = None

    def view(self) -> contract.View:
        return self.frozen

    def notice(self) -> None:
        """It never changes."""


def view_of(cluster: Any, *, rpc_layer: str, device_filters: Any) -> contract.View:
    """Make a view of a dict, a ClusterSpec or a ClusterDef, and of device filters in any form."""
    try:
        jobs = ClusterSpec(ClusterSpec(cluster)).as_dict()  # twice: a copy has text for bytes
        filters = filters_by_task(device_filters)
    except TFClusterError:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # such as a number that is too long for a message
        raise ArgumentValueError(str(error)) from error
    return contract.View(
        name="",
        namespace="",
        uid="",
        epoch=0,
        rpc_layer=_arguments.text(rpc_layer, "rpc_layer"),
        jobs={job: tuple(tasks) if isinstance(tasks, list) else dict(tasks) for job, tasks in jobs.items()},
        device_filters={
            job: tuple(contract.FilterRange(index, index + 1, texts) for index, texts in sorted(tasks.items()) if texts)
            for job, tasks in filters.items()
        },
    )
