"""Connecting to the cluster, bounded in time and with the view's device filters.

It decides when TensorFlow may be asked to connect: when every task listens, when the process may connect at all, and
when no tensor of an earlier cluster can be left to crash it.
"""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from tfcluster_resolver import reconnect, tensorflow_api
from tfcluster_resolver.connect_target import Target, target_of
from tfcluster_resolver.errors import DeviceScopeError, TasksUnreachableError
from tfcluster_resolver.waiting import wait_for_tasks

#: What ParameterServerStrategy sets before it connects.  TensorFlow reads them when it connects, which we do first:
#: without them an operation's failure can surface in the next one, and the strategy blames the wrong worker.
_PARAMETER_SERVER_SETTINGS: Final = {
    "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "False",
    "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY": "True",
}


def connect_to_cluster(  # noqa: PLR0917 - the signature of TensorFlow's function
    cluster_spec_or_resolver: Any,
    job_name: str | None = None,
    task_index: int | None = None,
    protocol: str | None = None,
    make_master_device_default: bool = True,
    cluster_device_filters: Any = None,
    *,
    timeout: float = 300.0,
    on_change: Literal["refuse", "reset"] = "refuse",
) -> None:
    """Connect this process to its cluster, as ``tf.config.experimental_connect_to_cluster`` does but bounded.

    It waits until every task of the ClusterSpec but the own one accepts connections, and then really connects
    (TensorFlow alone does so at the first operation), with the view's device filters.  Call it once, in the
    coordinating task, before the first variable is made and before a ``tf.distribute.ParameterServerStrategy``; give
    both one ``resolver.snapshot()``.  TensorFlow keeps the device filters of the first connection, so the TFCluster's
    hold in place of the strategy's own, also where it declares none.

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
        timeout: how long to wait for the tasks, in seconds.
        on_change: what to do where this process is connected to another ClusterSpec already: "refuse", or "reset" the
            connection, which only a process outside of both can, after it dropped all that lives on the old tasks.

    Raises:
        TasksUnreachableError: some tasks did not answer in time; each is listed with its cause.
        CoordinatorNotInClusterError: the resolver's task is not in the ClusterSpec (an evaluator never is).
        ClusterChangedError: the ClusterSpec or its device filters differ from those that this process is connected
            with, and a reset was not asked for or is not possible.
        ConnectedTooLateError: variables were made before, which the process's new job name would break.
        DeviceScopeError: it is called in a ``tf.device`` scope of another device than the master's CPU.
        NoSuchTaskError: ``task_index`` is none of that job.
        AddressError: an address is not "host:port".
        TensorFlowNotFoundError: TensorFlow is not installed.
        ViewError: the view is missing, unreadable, malformed or too new.
        TypeError: the cluster or the filters are of no such type.
        ValueError: it is called in a graph or a ``tf.function``, or ``on_change`` is another word.
    """
    if on_change not in ("refuse", "reset"):
        raise ValueError(f'on_change is "refuse" or "reset", not {on_change!r}')
    tensorflow = tensorflow_api.load("connect_to_cluster()")
    if not tensorflow.executing_eagerly():
        raise ValueError("connect_to_cluster() works in eager mode only: call it outside of graphs and tf.functions")
    target = target_of(
        cluster_spec_or_resolver,
        job=job_name,
        index=task_index,
        protocol=protocol,
        filters=cluster_device_filters,
        master=make_master_device_default,
    )
    if target is None:  # TensorFlow's resolver says that its cluster is this process alone
        return
    _check_scope(target, tensorflow)
    reconnect.permit(target, on_change=on_change)
    _await_tasks(target, timeout)
    _connect(target, tensorflow)


def _connect(target: Target, tensorflow: Any) -> None:
    if "ps" in target.spec.jobs:
        for name, value in _PARAMETER_SERVER_SETTINGS.items():
            os.environ.setdefault(name, value)
    # NB: TensorFlow would find the master by substring if it were given the resolver, so it gets the spec.
    tensorflow.config.experimental_connect_to_cluster(
        target.spec,
        job_name=target.job,
        task_index=target.index,
        protocol=target.protocol,
        make_master_device_default=False,
        cluster_device_filters=tensorflow_api.device_filters(target.filters),
    )
    reconnect.remember(target)
    tensorflow.config.list_logical_devices()
    if target.master is not None and not tensorflow_api.current_device():
        tensorflow.device(_device(target.master)).__enter__()


def _device(task: tuple[str, int]) -> str:
    return f"/job:{task[0]}/replica:0/task:{task[1]}/device:CPU:0"


def _check_scope(target: Target, tensorflow: Any) -> None:
    """Refuse another device scope before anything is connected; TensorFlow does so after."""
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


def _await_tasks(target: Target, timeout: float) -> None:
    others = target.others()
    missing = wait_for_tasks(others, timeout=timeout)
    if missing:
        raise TasksUnreachableError(
            f"{len(missing)} of {len(others)} other tasks of {target.name} did not accept a connection within "
            f"{timeout:g} s:\n" + "\n".join(f"  {one}" for one in missing),
            missing,
        )
