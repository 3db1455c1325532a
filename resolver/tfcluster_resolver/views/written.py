"""The view of a cluster that a program writes down, for tests and laptops."""

from __future__ import annotations

from typing import Any

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.device_filters import filters_by_task
from tfcluster_resolver.errors import ArgumentValueError, TFClusterError


def view_of(cluster: Any, rpc_layer: str, device_filters: Any) -> contract.View:
    """Make the view, at epoch 0 and without names; the arguments are those of ``from_spec``."""
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
        jobs={job: tuple(tasks) if isinstance(tasks, list) else tasks for job, tasks in jobs.items()},
        device_filters={
            job: tuple(contract.FilterRange(index, index + 1, texts) for index, texts in tasks.items() if texts)
            for job, tasks in filters.items()
        },
    )
