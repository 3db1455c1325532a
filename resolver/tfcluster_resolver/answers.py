"""What a resolver answers TensorFlow: ClusterSpec, own task, addresses, accelerators, device filters.

It decides the answers from a view and does not know where the view comes from; it connects to nothing.
"""

from __future__ import annotations

from typing import Any

from tfcluster_resolver import _arguments, accelerators
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.device_filters import ClusterDeviceFilters
from tfcluster_resolver.errors import NoSuchTaskError
from tfcluster_resolver.views.source import ViewSource


class ClusterAnswers:
    """The answers of a :class:`TFClusterResolver`, by the names that TensorFlow's ClusterResolver has for them."""

    _source: ViewSource
    #: The task that this pod is; None outside of the cluster's pods.
    _own: Task | None
    #: The task that is spoken for.
    _task_type: str | None
    _task_id: int | None
    _rpc_layer: str | None

    @property
    def task_type(self) -> str | None:
        """The job of the task that this resolver speaks for; None if unknown."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = _arguments.text_or_none(task_type, "task_type")

    @property
    def task_id(self) -> int | None:
        """The index of the task that this resolver speaks for; None if unknown."""
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = _arguments.index_or_none(task_id, "task_id")

    @property
    def rpc_layer(self) -> str:
        """TensorFlow's rpc layer: what was set, else what the TFCluster says."""
        return self.membership().view.rpc_layer if self._rpc_layer is None else self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = _arguments.text_or_none(rpc_layer, "rpc_layer")

    @property
    def environment(self) -> str:
        """Always empty, as TensorFlow's resolvers have it outside of Google."""
        return ""

    @property
    def leaving(self) -> bool:
        """Whether this resolver's task is no longer declared, and has its drainTimeoutSeconds to finish."""
        return self.membership().is_leaving(self.task_type, self.task_id)

    @property
    def epoch(self) -> int:
        """The edit of the TFCluster that last changed this view's tasks or filters; it only grows."""
        return self.membership().view.epoch

    def membership(self) -> Membership:
        """Read the view as it is now.

        Returns:
            Every answer of one epoch, as plain values.

        Raises:
            ViewError: the view is missing, unreadable, malformed or too new.
        """
        return Membership(view=self._source.view(), own=self._own)

    def cluster_spec(self) -> Any:
        """Give the tasks that this task sees, itself included; read at each call.

        An evaluator is in its own ClusterSpec and in no other.  TensorFlow's strategies demand TensorFlow's own class,
        so this imports TensorFlow where it is installed; ``membership().jobs()`` gives the same as plain values, and
        imports nothing.

        Returns:
            A new ``tf.train.ClusterSpec``, or our :class:`ClusterSpec` without TensorFlow.

        Raises:
            ViewError: the view is missing, unreadable, malformed or too new.
        """
        jobs = self.membership().jobs()
        if not tensorflow_api.is_installed():
            return ClusterSpec(jobs)
        return tensorflow_api.load("cluster_spec()").train.ClusterSpec(jobs)

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Give the URL of a task.

        It is never empty: TensorFlow's ``experimental_connect_to_cluster`` takes an empty one as "nothing to do".

        Args:
            task_type: the job; this resolver's own by default.
            task_id: the index; in the own job this resolver's own by default.
            rpc_layer: the scheme; this resolver's own by default, none at all if "".

        Returns:
            A URL such as "grpc://host:port".

        Raises:
            NoSuchTaskError: the view does not show that task, half of one is given, or none and the own one is unknown.
            ArgumentError: an argument is no job, no index or no rpc layer.
            ViewError: the view is missing, unreadable, malformed or too new.
        """
        rpc_layer = _arguments.text_or_none(rpc_layer, "rpc_layer")
        job, index = self._named(task_type, task_id)
        membership = self.membership()
        if job is None or index is None:
            raise NoSuchTaskError(
                "no task is named and this process is none of the cluster's: give task_type and task_id"
            )
        layer = rpc_layer if rpc_layer is not None else self._rpc_layer
        layer = layer if layer is not None else membership.view.rpc_layer
        address = membership.address_of(job, index)
        return f"{layer}://{address}" if layer else address

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Count the accelerators of a task: the healthy ones that the device plugin granted it.

        Of the task that this process is only those count that the process can use, so that no strategy plans for a
        device that is not there; a warning names both numbers where they differ.  If its pod's limits name no device
        that is known here, such as with a DRA claim, what the process can use counts.  TensorFlow's own resolvers match
        tasks by substring (task 1 counts 10 too); here a task is matched exactly.

        Args:
            task_type: the job; this resolver's own by default.
            task_id: the index; in the own job this resolver's own by default.
            config_proto: not used; TensorFlow's signature has it.

        Returns:
            Counts by TensorFlow's device type, such as {"GPU": 2}, zero for any other key; of all visible tasks
            together where no task is given and the own one is unknown.

        Raises:
            NoSuchTaskError: the view does not show that task, or half of a task is given.
            ArgumentError: an argument is no job or no index.
            ViewError: the view is missing, unreadable, malformed or too new.
        """
        del config_proto
        job, index = self._named(task_type, task_id)
        membership = self.membership()
        if not membership.view.name and (job, index) == (self._task_type, self._task_id):
            return accelerators.count_visible()
        if self._own is not None and (job, index) == self._own[:2]:
            return accelerators.count_usable(membership, self._own)
        return accelerators.count(membership, job, index)

    def device_filters(self) -> Any:
        """Give the view's device filters, declared up to maxReplicas, for TensorFlow's ``connect_to_cluster``.

        As with :meth:`cluster_spec` TensorFlow demands its own class; ``membership().device_filters()`` gives the same
        as plain values, and imports nothing.

        Returns:
            A ``tf.config.experimental.ClusterDeviceFilters``, or our :class:`ClusterDeviceFilters` without TensorFlow;
            None where the TFCluster declares none.

        Raises:
            ViewError: the view is missing, unreadable, malformed or too new.
        """
        declared = self.membership().device_filters()
        if tensorflow_api.is_installed():
            return tensorflow_api.device_filters(declared)
        filters = ClusterDeviceFilters()
        for job, tasks in declared.items():
            for index, texts in tasks.items():
                filters.set_device_filters(job, index, texts)
        return filters if any(declared.values()) else None

    def own_task(self) -> Task | None:
        """Tell which task of the cluster this pod is, whatever task the resolver speaks for; None outside its pods."""
        return self._own

    def _named(self, task_type: str | None, task_id: int | None) -> tuple[str | None, int | None]:
        """Tell which task a call is about; a job alone is a task in the own job only."""
        job, index = _arguments.text_or_none(task_type, "task_type"), _arguments.index_or_none(task_id, "task_id")
        if index is None and job in (None, self._task_type):
            index = self._task_id
        if job is None:
            job = self._task_type
        if (job is None) != (index is None):
            raise NoSuchTaskError(f"half a task: task_type is {job!r} and task_id is {index!r}; give both or neither")
        return job, index
