"""Connecting this process to the cluster: TensorFlow's ``experimental_connect_to_cluster``, without its silences.

It decides what TensorFlow is told and when; the waiting is in :mod:`tfcluster_resolver.reachability`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tfcluster_resolver import tensorflow_api
from tfcluster_resolver.errors import ClusterChangedError, CoordinatorNotInClusterError, TasksUnreachableError
from tfcluster_resolver.membership import Membership
from tfcluster_resolver.reachability import await_tasks
from tfcluster_resolver.resolver import TFClusterResolver

_RESIZE = (
    "Tensors and variables that live on the old cluster would crash this process.  Either restart it and restore a "
    "checkpoint; or drop every strategy, variable and tensor of the old cluster, build new ones and connect with "
    'on_change="reset"; or keep to the tasks of resolver.snapshot(), which a resize of the others does not disturb'
)


@dataclass(slots=True)
class _Connected:
    """What this process is connected to: TensorFlow has one context a process, so there is one of these."""

    membership: dict[str, Any] | None = None


_connected = _Connected()


def connect_to_cluster(
    resolver: TFClusterResolver,
    *,
    timeout: float = 300.0,
    on_change: Literal["refuse", "reset"] = "refuse",
    make_master_device_default: bool = True,
) -> None:
    """Connect this process to the cluster, as ``tf.config.experimental_connect_to_cluster`` does.

    TensorFlow's own call stores the ClusterSpec and returns; the first operation then waits, without a word and without
    end, for every task of it.  This call waits first, and says who is missing.  It passes on the view's device filters,
    declared up to maxReplicas, and the own task's job and index, so that the other tasks can reach this one.

    Args:
        resolver: the cluster; one epoch of it is taken.
        timeout: how long to wait for all other tasks to accept connections, in seconds.
        on_change: what to do where this process is connected to another ClusterSpec already: "refuse", or "reset".
        make_master_device_default: as in TensorFlow: operations without a device run on the own task.

    Raises:
        CoordinatorNotInClusterError: this process is no task of the ClusterSpec.
        TasksUnreachableError: some tasks did not answer in time; the message names each with its cause.
        ClusterChangedError: this process is connected to another ClusterSpec and ``on_change`` is "refuse".
        TensorFlowNotFoundError: TensorFlow is not installed.
        ViewError: the view cannot be used.
    """
    tensorflow = tensorflow_api.load("connect_to_cluster()")
    now = resolver.snapshot()
    membership = now.membership()
    job, index = _own_place(now, membership)
    jobs = membership.jobs()
    if _connected.membership not in (None, jobs) and on_change != "reset":
        raise ClusterChangedError(f"this process is connected to another ClusterSpec.  {_RESIZE}")
    others = [task for task in membership.tasks() if task[:2] != (job, index)]
    if missing := await_tasks(others, timeout=timeout):
        listed = "".join(f"\n  {task}" for task in missing)
        raise TasksUnreachableError(
            f"{len(missing)} of {len(others)} tasks did not accept a connection within {timeout:g} s:{listed}", missing
        )
    tensorflow.config.experimental_connect_to_cluster(
        now,
        job_name=job,
        task_index=index,
        protocol=now.rpc_layer,
        make_master_device_default=make_master_device_default,
        cluster_device_filters=now.device_filters(),
    )
    _connected.membership = jobs


def _own_place(resolver: TFClusterResolver, membership: Membership) -> tuple[str, int]:
    job, index = resolver.task_type, resolver.task_id
    if job is None or index is None or (job, index) not in {(one, i) for one, i, _ in membership.tasks()}:
        raise CoordinatorNotInClusterError(
            f"this process speaks for /job:{job}/task:{index}, which is no task of the ClusterSpec, so the other tasks "
            "could not reach it: run it in a task's pod (job chief, say)"
        )
    return job, index
