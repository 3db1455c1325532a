"""Connecting to the cluster, bounded in time and with the view's device filters.

It decides when TensorFlow may be asked to connect: when every task listens, when this process is a task of the cluster,
and when no tensor of an earlier cluster can be left to crash it.
"""

from __future__ import annotations

import os
from typing import Any, Final

from tfcluster_resolver import tensorflow_api
from tfcluster_resolver.errors import (
    ClusterChangedError,
    CoordinatorNotInClusterError,
    TasksUnreachableError,
)
from tfcluster_resolver.membership import Membership
from tfcluster_resolver.reachability import wait_for_tasks
from tfcluster_resolver.resolver import TFClusterResolver

#: What ParameterServerStrategy sets before it connects.  TensorFlow reads them when it connects, which we do first:
#: without them an operation's failure can surface in the next one, and the strategy blames the wrong worker.
_PARAMETER_SERVER_SETTINGS: Final = {
    "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "False",
    "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY": "True",
}

# NB: there is no way to connect anew in the same process: TensorFlow never closes the server that it opened on this
# task's own port, so the second one cannot open it.
_WAYS_TO_RESIZE: Final = """The ways to go on:
  1. end this process and start it again, restoring a checkpoint: the other tasks' servers need no restart;
  2. stay on the old cluster: give everything the snapshot() that this process connected with."""


def connect_to_cluster(resolver: TFClusterResolver, *, timeout: float = 300.0) -> None:
    """Connect this process to its cluster, as ``tf.config.experimental_connect_to_cluster`` does but bounded.

    It waits until every task of the ClusterSpec but the own one accepts connections, and then really connects
    (TensorFlow alone does so at the first operation), with the view's device filters.  Call it once, in the
    coordinating task, before the first variable is made and before a ``tf.distribute.ParameterServerStrategy``; give
    both one ``resolver.snapshot()``.  TensorFlow keeps the device filters of the first connection, so the TFCluster's
    hold in place of the strategy's own, also where it declares none.

    A second call with an unchanged cluster repairs the connection to tasks that came back at the same address;
    variables stay.

    Args:
        resolver: the cluster, and the task that this process is.
        timeout: how long to wait for the tasks, in seconds.

    Raises:
        TasksUnreachableError: some tasks did not answer in time; each is listed with its cause.
        CoordinatorNotInClusterError: the resolver's task is not in the ClusterSpec (an evaluator never is).
        ClusterChangedError: the ClusterSpec differs from the one that this process is connected to.
        AddressError: an address is not "host:port".
        TensorFlowNotFoundError: TensorFlow is not installed.
        ViewError: the view is missing, unreadable, malformed or too new.
        TypeError: ``resolver`` is not a TFClusterResolver.
    """
    if not isinstance(resolver, TFClusterResolver):
        raise TypeError(f"connect_to_cluster takes a TFClusterResolver, not {type(resolver).__name__}")
    tensorflow = tensorflow_api.load("connect_to_cluster()")
    now = resolver.snapshot()
    membership = now.membership()
    job, index = _coordinator(now, membership)
    spec = now.cluster_spec()
    _refuse_change(spec, job, index)
    _await_tasks(membership, job, index, timeout)
    if "ps" in spec.jobs:
        for name, value in _PARAMETER_SERVER_SETTINGS.items():
            os.environ.setdefault(name, value)
    # NB: TensorFlow would find this task's address by substring if it were given the resolver, so it gets the spec; and
    # the default device needs no setting, since it is this task's already.
    tensorflow.config.experimental_connect_to_cluster(
        spec,
        job_name=job,
        task_index=index,
        protocol=now.rpc_layer or None,
        make_master_device_default=False,
        cluster_device_filters=now.device_filters(),
    )
    tensorflow.config.list_logical_devices()


def _coordinator(resolver: TFClusterResolver, membership: Membership) -> tuple[str, int]:
    job, index = resolver.task_type, resolver.task_id
    if job is None or index is None:
        raise CoordinatorNotInClusterError(
            "this process is no task of the cluster: run it in one of the TFCluster's pods, or give the resolver "
            "the task_type and task_id of a task whose address leads here"
        )
    if (job, index) not in {(job, index) for job, index, _ in membership.tasks()}:
        raise CoordinatorNotInClusterError(
            f"/job:{job}/task:{index} is not in the ClusterSpec of {membership.view.namespace}/{membership.view.name}, "
            "so the other tasks could not reach it: let a job such as chief connect (an evaluator never does)"
        )
    return job, index


def _refuse_change(spec: Any, job: str, index: int) -> None:
    connected = tensorflow_api.connected_to()
    if connected is None or connected == (spec, job, index):
        return
    before = connected[0]
    raise ClusterChangedError(
        f"this process is connected to {before} as /job:{connected[1]}/task:{connected[2]}, and the cluster is now "
        f"{spec} with /job:{job}/task:{index} here. The next use of anything on the old tasks would crash it.\n"
        f"{_WAYS_TO_RESIZE}"
    )


def _await_tasks(membership: Membership, job: str, index: int, timeout: float) -> None:
    others = [task for task in membership.tasks() if task[:2] != (job, index)]
    missing = wait_for_tasks(others, timeout=timeout)
    if missing:
        view = membership.view
        raise TasksUnreachableError(
            f"{len(missing)} of {len(others)} other tasks of {view.namespace}/{view.name} (epoch {view.epoch}) did not "
            f"accept a connection within {timeout:g} s:\n" + "\n".join(f"  {one}" for one in missing),
            missing,
        )
