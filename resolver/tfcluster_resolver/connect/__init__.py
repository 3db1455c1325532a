"""Connecting to the cluster, bounded in time and with the view's device filters.

TensorFlow is asked when every task of the cluster as it then is answers, when the own port is free, and when no tensor
of an earlier cluster can be left to crash the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Literal

from tfcluster_resolver import _arguments, waiting
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.connect import reconnect
from tfcluster_resolver.connect.target import Target, target_of
from tfcluster_resolver.errors import ArgumentValueError, ConnectError, DeviceScopeError
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.waiting import Wanted

#: ParameterServerStrategy sets these before it connects.  TensorFlow reads them when it connects, which we do first:
#: without them an operation's failure can surface in the next one, and the strategy blames the wrong worker.
_PARAMETER_SERVER_SETTINGS: Final = {
    "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "False",
    "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY": "True",
}
#: Has ParameterServerStrategy learn of lost workers from a service; any text switches it on, "0" too.
_COORDINATION_SERVICE: Final = "TF_PSS_ENABLE_COORDINATION_SERVICE"


def connect_to_cluster(  # noqa: PLR0917 - the signature of TensorFlow's function
    cluster_spec_or_resolver: Any,
    job_name: str | None = None,
    task_index: int | None = None,
    protocol: str | None = None,
    make_master_device_default: bool = True,
    cluster_device_filters: Any = None,
    *,
    timeout: float = 300.0,
    on_change: Literal["refuse", "reset", "update"] = "refuse",
) -> None:
    """Connect this process to its cluster, as ``tf.config.experimental_connect_to_cluster`` does but bounded.

    It waits until every task of the ClusterSpec but the own one answers, and then really connects (TensorFlow alone
    does so at the first operation), with the view's device filters.  Call it once, in the coordinating task, before the
    first variable is created and before a ``tf.distribute.ParameterServerStrategy``; give both one
    ``resolver.snapshot()``.  TensorFlow keeps the device filters of the first connection, so the TFCluster's
    replace the strategy's own, even if it declares none.

    With a TFClusterResolver that is not a snapshot, the wait follows a resize: it connects to the tasks that exist at
    the end.  A snapshot's tasks never change, so the wait for one ends when the cluster scales a task of it away.

    A second call with an unchanged cluster repairs the connection to tasks that came back at the same address;
    variables stay.

    Args:
        cluster_spec_or_resolver: a TFClusterResolver; or, as TensorFlow's function takes them, any ClusterResolver or a
            ClusterSpec, TensorFlow's or ours.
        job_name: the job of this process; by default that of the TFClusterResolver, else "localhost".  A job outside of
            the ClusterSpec works as long as no other task has to reach this process.
        task_index: its task index; by default that of the TFClusterResolver, else 0.
        protocol: TensorFlow's protocol; by default the TFClusterResolver's rpc layer, else "grpc".
        make_master_device_default: with a resolver, enter ``tf.device`` of its master's CPU for good, in this thread.
        cluster_device_filters: ClusterDeviceFilters of TensorFlow's or ours, or a mapping from job to a mapping from
            index to a list of filters; by default those of the TFClusterResolver, declared up to maxReplicas.
        timeout: how long to wait for the tasks, in seconds; 0 looks once, for about a second.
        on_change: what to do if this process is connected to another ClusterSpec already: "refuse"; "update" the
            cluster and keep the objects on the tasks that stay, if the removed tasks hold none; or "reset" the
            connection, which only a process outside of both can, after it dropped all objects on the old tasks.
            A ClusterCoordinator's cluster is changed by :func:`tfcluster_resolver.resize`.

    Raises:
        TasksUnreachableError: some tasks did not answer in time; each is listed with its cause.
        SnapshotOutdatedError: a task of the snapshot was scaled away, and some have not answered.
        PortTakenError: another program listens on this task's port, such as the ``serve`` of the same pod.
        ServeError: this user cannot listen on this task's port.
        CoordinatorNotInClusterError: the resolver's task is not in the others' ClusterSpec (an evaluator never is).
        ClusterChangedError: the ClusterSpec or its device filters differ from those that this process is connected
            with, and an update or a reset was not asked for or is not possible.
        RestartNeededError: this TensorFlow's cluster cannot be updated in place.
        ConnectedTooLateError: variables were created before, which the process's new job name would break.
        DeviceScopeError: it is called in a ``tf.device`` scope of another device than the master's CPU.
        NoSuchTaskError: that job does not have the task ``task_index``.
        AddressError: an address is not "host:port".
        ConnectError: TensorFlow rejects the cluster, such as the name of a job; or a resolver's master is not in it; or
            TF_PSS_ENABLE_COORDINATION_SERVICE is set.
        TensorFlowNotFoundError: TensorFlow is not installed.
        ViewError: the view is missing, unreadable, malformed or too new.
        ArgumentError: an argument is of another type or has a value that it cannot have, or it is called in a graph or
            a ``tf.function``.
    """
    seconds = _arguments.seconds(timeout, "timeout")
    if on_change not in ("refuse", "reset", "update"):
        raise ArgumentValueError(f'on_change is "refuse", "reset" or "update", not {on_change!r}')
    tensorflow = tensorflow_api.load("connect_to_cluster()")
    if not tensorflow.executing_eagerly():
        raise ArgumentValueError(
            "connect_to_cluster() works in eager mode only: call it outside of graphs and tf.functions"
        )

    if os.environ.get(_COORDINATION_SERVICE):
        raise ConnectError(
            f"{_COORDINATION_SERVICE} is set, and the service cannot start in a process that has connected: the loss "
            "of a worker would end the training. Unset it; or leave out connect_to_cluster(), and with it the "
            "TFCluster's device filters"
        )

    def permitted() -> Target | None:
        target = target_of(
            cluster_spec_or_resolver,
            job=job_name,
            index=task_index,
            protocol=protocol,
            filters=cluster_device_filters,
            master=make_master_device_default,
        )
        if target is not None:
            _check_scope(target, tensorflow)
            reconnect.permit(target, on_change=on_change)
        return target

    target = _await_tasks(cluster_spec_or_resolver, permitted, timeout=seconds)
    if target is None:  # the cluster of TensorFlow's resolver is only this process
        return
    reconnect.permit(target, on_change=on_change)  # the wait can be long
    if on_change == "update" and reconnect.update(target, seconds):
        reconnect.remember(target)
    else:
        _connect(target, tensorflow)


def _await_tasks(cluster: Any, permitted: Callable[[], Target | None], *, timeout: float) -> Target | None:
    """Wait for the current tasks of a cluster, also if they change, and return the cluster at the end."""
    resolver = cluster if isinstance(cluster, TFClusterResolver) else None
    read = resolver.membership() if resolver is not None else None
    target = permitted()
    if target is None:
        return None

    def look() -> Wanted:
        nonlocal read, target
        now = resolver.membership() if resolver is not None else None
        if now != read:
            read, target = now, permitted()
        assert target is not None  # noqa: S101 - a TFClusterResolver always has one
        return Wanted(target.others(), target.name, waiting.gone_from(resolver) if resolver is not None else ())

    waiting.wait_for(look, timeout=timeout, grpc=target.protocol in {None, "grpc"})
    return target


def _connect(target: Target, tensorflow: Any) -> None:
    if "ps" in target.spec.jobs:
        for name, value in _PARAMETER_SERVER_SETTINGS.items():
            os.environ.setdefault(name, value)
    filters = None
    if any(texts for tasks in target.filters.values() for texts in tasks.values()):
        filters = tensorflow_api.device_filters(target.filters, "connect_to_cluster()")
    try:
        # TensorFlow would find the master by substring if it were given the resolver, so it gets the spec.
        tensorflow.config.experimental_connect_to_cluster(
            target.spec,
            job_name=target.job,
            task_index=target.index,
            protocol=target.protocol,
            make_master_device_default=False,
            cluster_device_filters=filters,
        )
        reconnect.remember(target)
        tensorflow.config.list_logical_devices()
    except tensorflow.errors.OpError as error:
        raise ConnectError(
            f"TensorFlow cannot connect {target} to {target.name}, and this process must start again before it can "
            f"connect to anything: {error.message}"
        ) from error
    if target.master is not None and not tensorflow_api.current_device():
        tensorflow.device(_device(target.master)).__enter__()


def _device(task: tuple[str, int]) -> str:
    return f"/job:{task[0]}/replica:0/task:{task[1]}/device:CPU:0"


def _check_scope(target: Target, tensorflow: Any) -> None:
    """Reject another device scope before anything is connected; TensorFlow does so after."""
    current = tensorflow_api.current_device()
    if target.master is None or not current:
        return
    inside = tensorflow.DeviceSpec.from_string(current)
    wanted = tensorflow.DeviceSpec.from_string(_device(target.master))
    if wanted.make_merged_spec(inside) != wanted:
        raise DeviceScopeError(
            f"connect_to_cluster() is called in the tf.device scope {current}, so {_device(target.master)} cannot "
            "become the default: call it outside of the scope, or pass make_master_device_default=False"
        )
