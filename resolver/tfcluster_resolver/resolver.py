"""The cluster resolver of a TFCluster's pods.

It decides what TensorFlow is told: the ClusterSpec, the own task, the addresses, the accelerators and the device
filters of the mounted view.  It connects to nothing.

TensorFlow's callers check ``isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver)``, and importing this
module must not import TensorFlow, which takes seconds.  So the class is plain, and its *instances* are of a subclass
that has TensorFlow's base as well: it is made at the first instantiation, which is early enough because nobody can
check an instance before.  That holds whichever of the two packages was imported first, and for subclasses of users too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any, Protocol, Self

from tfcluster_resolver import contract, tensorflow_api
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.errors import NoSuchTaskError
from tfcluster_resolver.membership import Membership
from tfcluster_resolver.task import EVALUATOR, OwnTask, own_task
from tfcluster_resolver.view_file import ReadView, ViewFile

#: The subclass with TensorFlow's base, for each class that was instantiated.
_with_tensorflow: dict[type, type] = {}


class ViewSource(Protocol):
    """Where a resolver's view comes from."""

    def read(self) -> ReadView:
        """Give the view as it is now."""


class _Frozen:
    """The view of one moment."""

    def __init__(self, view: ReadView) -> None:
        self._view = view

    def read(self) -> ReadView:
        return self._view


class TFClusterResolver:
    """Tells TensorFlow of the TFCluster that this pod is a task of.

    It is a ``tf.distribute.cluster_resolver.ClusterResolver`` wherever TensorFlow is installed, and works the same
    where it is not.  Each call reads the mounted view anew (one ``stat`` while it is unchanged); :meth:`snapshot`
    freezes one epoch, which a strategy wants, because its constructor asks several times::

        resolver = TFClusterResolver()
        now = resolver.snapshot()
        connect_to_cluster(now)
        strategy = tf.distribute.ParameterServerStrategy(now)

    Args:
        task_type: the job of the task to speak for; the pod's own by default.
        task_id: that task's index; the pod's own by default.
        rpc_layer: TensorFlow's rpc layer; the TFCluster's own by default.
        directory: the folder of the mounted view; by default that of ``TFCLUSTER_DIR``, or ``/etc/tfcluster``.

    Raises:
        ViewError: the view is missing, unreadable, malformed or too new.
        TaskIdentityError: the pod's environment names its task incompletely.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an instance that is TensorFlow's ClusterResolver too, where TensorFlow is installed."""
        del args, kwargs
        return object.__new__(_concrete(cls))

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._own = own_task(os.environ)
        self._task_type = task_type if task_type is not None or self._own is None else self._own.job
        self._task_id = task_id if task_id is not None or self._own is None else self._own.index
        self._rpc_layer = rpc_layer
        mounted = directory or os.environ.get(contract.ENV_DIRECTORY) or contract.DEFAULT_DIRECTORY
        self._source: ViewSource = ViewFile(mounted, self._own.index if self._own is not None else self._task_id)
        self._source.read()

    @property
    def task_type(self) -> str | None:
        """The job of the task that this resolver speaks for; None if unknown."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of the task that this resolver speaks for; None if unknown."""
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str:
        """TensorFlow's rpc layer: what was set, else what the TFCluster says."""
        return self.membership().view.rpc_layer if self._rpc_layer is None else self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    @property
    def environment(self) -> str:
        """Always empty, as TensorFlow's resolvers have it outside of Google."""
        return ""

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
        return Membership(view=self._source.read().view, own=self._own)

    def snapshot(self) -> Self:
        """Freeze what the resolver answers now.

        Returns:
            A resolver of the same class and task that gives the same epoch for ever.
        """
        frozen = type(self).__new__(type(self))
        frozen.__dict__.update(self.__dict__)
        frozen._source = _Frozen(self._source.read())  # noqa: SLF001 - of the same class
        return frozen

    def cluster_spec(self) -> Any:
        """Give the tasks that this task sees, itself included; read anew at each call.

        An evaluator sees the cluster and is not in it, as in TensorFlow.

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
            task_id: the index; this resolver's own by default.
            rpc_layer: the scheme; this resolver's own by default, none at all if "".

        Returns:
            A URL such as "grpc://host:port".

        Raises:
            NoSuchTaskError: the view does not show that task, or no task is given and the own one is unknown.
            ViewError: the view is missing, unreadable, malformed or too new.
        """
        membership = self.membership()
        job, index = self._named(task_type, task_id)
        if job is None or index is None:
            raise NoSuchTaskError(
                "no task is named and this process is none of the cluster's: give task_type and task_id"
            )
        if job == EVALUATOR:
            raise NoSuchTaskError("an evaluator is no task of the cluster, so it has no address there")
        layer = rpc_layer if rpc_layer is not None else self._rpc_layer
        layer = layer if layer is not None else membership.view.rpc_layer
        address = membership.address_of(job, index)
        return f"{layer}://{address}" if layer else address

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Count the healthy accelerators that the device plugin granted a task.

        TensorFlow's own resolvers match tasks by substring (task 1 counts 10 too); here a task is matched exactly.

        Args:
            task_type: the job; this resolver's own by default.
            task_id: the index; this resolver's own by default.
            config_proto: not used; TensorFlow's signature has it.

        Returns:
            Counts by TensorFlow's device type, such as {"GPU": 2}, zero for any other key; of all visible tasks
            together where no task is given and the own one is unknown.

        Raises:
            NoSuchTaskError: the view does not show that task, or only half of a task is known.
            ViewError: the view is missing, unreadable, malformed or too new.
        """
        del config_proto
        membership = self.membership()
        job, index = self._named(task_type, task_id)
        if (job is None) != (index is None):
            raise NoSuchTaskError(f"half a task: task_type is {job!r} and task_id is {index!r}; give both or neither")
        every = ((job, index) for job, index, _ in membership.tasks())
        total: defaultdict[str, int] = defaultdict(int)
        for one_job, one_index in every if job is None or index is None else [(job, index)]:
            for device, count in membership.device_counts(one_job, one_index).items():
                total[device] += count
        return total

    def device_filters(self) -> Any:
        """Give the view's device filters in the form that TensorFlow takes, declared up to maxReplicas.

        Returns:
            A ``tf.config.experimental.ClusterDeviceFilters``, or None where the TFCluster declares none.

        Raises:
            TensorFlowNotFoundError: TensorFlow is not installed.
            ViewError: the view is missing, unreadable, malformed or too new.
        """
        declared = self.membership().device_filters()
        filters = tensorflow_api.load("device_filters()").config.experimental.ClusterDeviceFilters()
        for job, tasks in declared.items():
            for index, texts in tasks.items():
                filters.set_device_filters(job, index, list(texts))
        return filters if any(declared.values()) else None

    def own_task(self) -> OwnTask | None:
        """Tell which task of the cluster this pod is, whatever task the resolver speaks for; None outside its pods."""
        return self._own

    def _named(self, task_type: str | None, task_id: int | None) -> tuple[str | None, int | None]:
        return (
            self._task_type if task_type is None else task_type,
            self._task_id if task_id is None else task_id,
        )

    def __repr__(self) -> str:
        view = self.membership().view
        task = f"/job:{self._task_type}/task:{self._task_id}"
        return f"<{type(self).__name__} {view.namespace}/{view.name} epoch {view.epoch}, {task}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by the class that has a name: the one with TensorFlow's base is made on the fly."""
        return _restore, (type(self).__dict__.get("_declared_as", type(self)), self.__dict__.copy())


def _concrete(cls: type) -> type:
    if not tensorflow_api.is_installed():
        return cls
    base = tensorflow_api.load("TFClusterResolver").distribute.cluster_resolver.ClusterResolver
    if issubclass(cls, base):
        return cls
    if cls not in _with_tensorflow:
        body = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
        body["_declared_as"] = cls
        _with_tensorflow[cls] = type(base)(cls.__name__, (cls, base), body)
    return _with_tensorflow[cls]


def _restore(cls: type[TFClusterResolver], state: dict[str, Any]) -> TFClusterResolver:
    resolver = cls.__new__(cls)
    resolver.__dict__.update(state)
    return resolver
