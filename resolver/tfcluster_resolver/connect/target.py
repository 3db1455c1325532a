"""The target of a connection: the cluster, its own task there, the filters, the default device.

All of it comes from the caller's arguments, with TensorFlow's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfcluster_resolver import _arguments
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.cluster import Task
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.contract import EVALUATOR
from tfcluster_resolver.device_filters import filters_by_task
from tfcluster_resolver.errors import ArgumentTypeError, ConnectError, CoordinatorNotInClusterError, NoSuchTaskError
from tfcluster_resolver.resolver import TFClusterResolver

#: TensorFlow's name for a process outside of the cluster.
LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster of TensorFlow's to connect to, and as which task, which can be outside of the spec."""

    spec: Any
    job: str
    index: int
    protocol: str | None
    filters: Mapping[str, Mapping[int, tuple[str, ...]]]
    #: The task whose CPU becomes the default device.
    master: tuple[str, int] | None
    #: The cluster's name in error messages.
    name: str

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index}"

    @property
    def inside(self) -> bool:
        """Whether this process is a task of the ClusterSpec."""
        return self.job in self.spec.jobs and self.index in self.spec.task_indices(self.job)

    def others(self) -> list[Task]:
        return [task for task in tasks_in(self.spec) if task[:2] != (self.job, self.index)]


def tasks_in(spec: Any) -> list[Task]:
    return [Task(job, index, spec.task_address(job, index)) for job in spec.jobs for index in spec.task_indices(job)]


def target_of(
    cluster: Any, *, job: str | None, index: int | None, protocol: str | None, filters: Any, master: bool
) -> Target | None:
    """Find the target of the connection; None if one of TensorFlow's resolvers does not have any."""
    job = _arguments.text_or_none(job, "job_name")
    index = _arguments.index_or_none(index, "task_index")
    protocol = _arguments.text_or_none(protocol, "protocol")
    tensorflow = tensorflow_api.load("connect_to_cluster()")
    if isinstance(cluster, TFClusterResolver):
        target = _of_ours(cluster.snapshot(), job, index, protocol, filters, master=master)
    else:
        name, master_task = "the given ClusterSpec", None
        if isinstance(cluster, ClusterSpec):
            spec = tensorflow.train.ClusterSpec(cluster.as_dict())
        elif isinstance(cluster, tensorflow.train.ClusterSpec):
            spec = cluster
        elif isinstance(cluster, tensorflow.distribute.cluster_resolver.ClusterResolver):
            url = cluster.master()
            if url in ("", "local"):
                return None
            spec, name = cluster.cluster_spec(), f"{type(cluster).__name__}'s cluster"
            # "grpc://" does not name a task: SimpleClusterResolver returns it with an rpc layer and without a master.
            master_task = _task_at(url, spec) if master and url and not url.endswith("://") else None
        else:
            raise ArgumentTypeError(
                "connect_to_cluster takes a TFClusterResolver, a ClusterResolver or a ClusterSpec, not "
                f"{type(cluster).__name__}; TFClusterResolver.from_spec() takes a dict or a ClusterDef"
            )
        target = Target(spec, job or LOCALHOST, index or 0, protocol, filters_by_task(filters), master_task, name)
    if not target.inside and (target.job in target.spec.jobs or target.index != 0):
        raise NoSuchTaskError(
            f"this process cannot be {target} of {target.name}: a process outside of the ClusterSpec is task 0 of a "
            "job that the ClusterSpec does not have"
        )
    return target


def _of_ours(
    now: TFClusterResolver, job: str | None, index: int | None, protocol: str | None, filters: Any, *, master: bool
) -> Target:
    spec, view = now.cluster_spec(), now.membership().view
    name = f"{view.namespace}/{view.name} (epoch {view.epoch})" if view.name else "the given ClusterSpec"
    own_job = now.task_type if job is None else job
    own_index = index if index is not None else now.task_id if own_job == now.task_type else 0
    if own_job is None or own_index is None:
        raise CoordinatorNotInClusterError(
            "this process is not a task of the cluster: run it in one of the TFCluster's pods, or give the resolver "
            "the task_type and task_id of a task whose address leads here, or, if no task needs to reach it, pass "
            f"job_name={LOCALHOST!r}"
        )
    # An evaluator is in its own ClusterSpec and in no other.
    seen = own_job in (view.jobs if own_job == EVALUATOR else spec.jobs)
    if job is None and (not seen or own_index not in spec.task_indices(own_job)):
        raise CoordinatorNotInClusterError(
            f"/job:{own_job}/task:{own_index} is not in the ClusterSpec of {name}, so the other tasks could not reach "
            f"it: let a job such as chief connect (an evaluator never does), or pass job_name={LOCALHOST!r}"
        )
    declared = now.membership().device_filters() if filters is None else filters_by_task(filters)
    master_task = _master_of(now, spec) if master else None
    return Target(spec, own_job, own_index, protocol or now.rpc_layer or None, declared, master_task, name)


def _master_of(now: TFClusterResolver, spec: Any) -> tuple[str, int] | None:
    """Find the resolver's master; without a task the default device is not set."""
    try:
        url = now.master()
    except NoSuchTaskError:
        return None
    own = (now.task_type, now.task_id)
    # A cluster with two tasks at one address does not work, but the own one of them is meant.
    return next((task for task in _tasks_at(url, spec) if task == own), None) or _task_at(url, spec)


def _task_at(url: str, spec: Any) -> tuple[str, int]:
    found = _tasks_at(url, spec)
    if not found:
        raise ConnectError(f"the resolver's master {url} is not the address of any task of its ClusterSpec {spec}")
    return found[0]


def _tasks_at(url: str, spec: Any) -> list[tuple[str, int]]:
    """Find the tasks at exactly this address: TensorFlow matches parts of addresses, too."""
    address = url.rpartition("://")[2]
    return [(job, index) for job, index, there in tasks_in(spec) if there.rpartition("://")[2] == address]
