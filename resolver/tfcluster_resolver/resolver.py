"""The cluster resolver of a TFCluster's pods: where its view comes from, and what it answers TensorFlow."""

from __future__ import annotations

import copy
import os
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfcluster_resolver import _arguments, accelerators, contract
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.cluster import Membership, Task, own_task
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.device_filters import read_filters
from tfcluster_resolver.errors import ArgumentValueError, NoSuchTaskError, ViewError
from tfcluster_resolver.views.file import ViewFile
from tfcluster_resolver.views.kubernetes import KubernetesViews
from tfcluster_resolver.views.watch import FrozenView, ViewSource, Watch
from tfcluster_resolver.views.written import view_of

if TYPE_CHECKING:
    from typing import Self  # not in Python 3.10


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """The changes of a new epoch of the cluster, for this task.

    Attributes:
        epoch: the new epoch.
        added: the new tasks, by job and index; one whose address changed is in ``removed`` too.
        removed: the removed tasks, with the own one if it is one of them: its ClusterSpec keeps it, because TensorFlow
            needs it there.
        filters_changed: whether the device filters of any task changed.
        resolver: a snapshot of the resolver at this epoch.
        leaving: the tasks that leave now, by job and index: they still run for their job's drainTimeoutSeconds.
    """

    epoch: int
    added: tuple[Task, ...]
    removed: tuple[Task, ...]
    filters_changed: bool
    resolver: TFClusterResolver
    leaving: tuple[tuple[str, int], ...] = ()


class TFClusterResolver:
    """The TFCluster that this pod is a task of, for TensorFlow.

    TensorFlow takes it as a ``tf.distribute.cluster_resolver.ClusterResolver``, and it works the same where TensorFlow
    is not installed.  Each call reads the mounted view (one ``stat`` while it is unchanged).  A strategy asks several
    times while it is built, so give it a :meth:`snapshot`, which stays at one epoch::

        resolver = TFClusterResolver()
        now = resolver.snapshot()
        connect_to_cluster(now)
        strategy = tf.distribute.ParameterServerStrategy(now)

    Args:
        task_type: the job of the task to speak for; the pod's own by default.
        task_id: that task's index; in the pod's own job its own by default.
        rpc_layer: TensorFlow's rpc layer; the TFCluster's own by default.
        directory: the folder of the mounted view; by default that of ``TFCLUSTER_DIR``, or ``/etc/tfcluster``.
        source: where the view comes from instead; the environment is not looked at then.

    Raises:
        ViewError: the view is missing, unreadable, malformed or too new; any method can raise it.
        TaskIdentityError: the pod's environment names its task incompletely.
        ArgumentError: an argument is of another type, as in any method; or another job is given without an index.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        source: ViewSource | None = None,
    ) -> None:
        self._own = own_task(os.environ) if source is None else None
        self._task_type = _arguments.text_or_none(task_type, "task_type")
        self._task_id = _arguments.index_or_none(task_id, "task_id")
        self._rpc_layer = _arguments.text_or_none(rpc_layer, "rpc_layer")
        if self._own is not None and self._task_type is None:
            self._task_type = self._own.job
        if self._own is not None and self._task_id is None:
            if self._task_type != self._own.job:
                raise ArgumentValueError(
                    f"task_type {self._task_type!r} was given without task_id, and this pod is {self._own}: give both "
                    "or neither"
                )
            self._task_id = self._own.index
        if source is None:
            mounted = directory or os.environ.get(contract.ENV_DIRECTORY) or contract.DEFAULT_DIRECTORY
            source = ViewFile(mounted, self._own.index if self._own is not None else self._task_id)
        self._source = source
        self._source.view()

    @classmethod
    def from_spec(
        cls,
        cluster: Any,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str = "grpc",
        device_filters: Any = None,
    ) -> Self:
        """Make a resolver of a written cluster, at epoch 0 forever, for tests and laptops; the environment is not used.

        ``cluster`` is what ``tf.train.ClusterSpec`` takes, or a ClusterSpec of ours or TensorFlow's, or a ClusterDef;
        ``device_filters`` are ClusterDeviceFilters of ours or TensorFlow's, or a mapping from job to a mapping from
        index to a list of filters (DeviceNameError if TensorFlow could not read one).  The
        accelerators are those that this process sees, for the given task, and none for any other.
        """
        return cls(task_type, task_id, source=FrozenView(view_of(cluster, rpc_layer, device_filters)))

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> Self:
        """Make a resolver of a view file, such as a copy of a pod's; it is read at each call, and no environment."""
        return cls(task_type, task_id, rpc_layer, source=ViewFile.at(path))

    @classmethod
    def from_kubernetes(
        cls,
        name: str,
        namespace: str | None = None,
        *,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
    ) -> Self:
        """Make a resolver of a TFCluster through the API server: for a notebook outside of its pods.

        It needs the package ``kubernetes`` and the permission to list ConfigMaps in the namespace; with the permission
        to get TFClusters it also tells a cluster that is not published yet from one that does not exist.  It sees what
        a task without device filters sees; a task that every view hides is not in it.  Each call asks the API server,
        so give a strategy a :meth:`snapshot`.

        Args:
            name: the TFCluster's name.
            namespace: its namespace; by default the pod's own, or that of the kubeconfig's context.
            task_type: as of the class, like ``task_id`` and ``rpc_layer``.
            task_id: likewise.
            rpc_layer: likewise.
            kubeconfig: a kubeconfig file; by default the pod's service account, else that of ``kubectl``.
            context: a context in it; its current one by default.

        Raises:
            KubernetesError: the view cannot be read from the API server; a subclass says why.
        """
        source = KubernetesViews(name, namespace, kubeconfig=kubeconfig, context=context)
        return cls(task_type, task_id, rpc_layer, source=source)

    def snapshot(self) -> Self:
        """Return a resolver of the same class and task that stays at the epoch of now."""
        return self._frozen_at(self._source.view())

    def _frozen_at(self, view: contract.View) -> Self:
        frozen = copy.copy(self)
        frozen._source = FrozenView(view, live=self._live_again()._source)  # noqa: SLF001 - of the same class
        return frozen

    def _live_again(self) -> Self:
        """Return this resolver as it follows its cluster, also if it is a snapshot."""
        live = copy.copy(self)
        if isinstance(self._source, FrozenView):
            live._source = self._source.live or self._source  # noqa: SLF001 - of the same class
        return live

    def watch(self, timeout: float | None = None) -> Watch[NewEpoch]:
        """Wait for the cluster to change; each new epoch is yielded as it comes.

        A new epoch is known within 100 ms after the kubelet swapped the mounted files, and within a second or so by
        :meth:`from_kubernetes`.  Of several quick ones the last is never missed.  The watch of a :meth:`snapshot`
        begins at the snapshot's epoch, so nothing is lost between freezing and watching::

            cluster = TFClusterResolver().snapshot()
            for change in cluster.watch():
                print(change.epoch, change.added, change.removed)

        A lost accelerator is not an epoch.  The iterator's ``close()`` ends it, also from another thread.

        Args:
            timeout: end after that many seconds without a new epoch, counted again for each epoch; 0 looks once, None
                never ends.

        Raises:
            ViewError: the iterator could not read the view for 5 seconds; it continues when it is asked again.
        """
        timeout = _arguments.seconds_or_none(timeout, "timeout")
        live = self._live_again()
        interval = live._source.interval  # noqa: SLF001 - of the same class
        return Watch(live.membership, self.membership(), interval, timeout, self._new_epoch)

    def _new_epoch(self, before: Membership, now: Membership) -> NewEpoch:
        # The view's own tasks; the own one is put into each ClusterSpec, also when it is no longer declared.
        old, new = (set(Membership(view=one.view, own=None).tasks()) for one in (before, now))
        added, removed = tuple(sorted(new - old)), tuple(sorted(old - new))
        changed = before.device_filters() != now.device_filters()
        return NewEpoch(now.view.epoch, added, removed, changed, self._frozen_at(now.view), now.leaving())

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

    def own_task(self) -> Task | None:
        """Return the task that this pod is, whatever task the resolver speaks for; None outside the cluster's pods."""
        return self._own

    def membership(self) -> Membership:
        """Read the view as it is now: every answer of one epoch, as plain values."""
        return Membership(view=self._source.view(), own=self._own)

    def cluster_spec(self) -> Any:
        """Return the tasks that this task sees, itself included, as a new ``tf.train.ClusterSpec``.

        TensorFlow's strategies demand TensorFlow's own class, so this imports TensorFlow; if it is not installed, it
        returns our :class:`ClusterSpec`.  ``membership().jobs()`` gives the same as plain values.
        """
        jobs = self.membership().jobs()
        if not tensorflow_api.is_installed():
            return ClusterSpec(jobs)
        return tensorflow_api.load("cluster_spec()").train.ClusterSpec(jobs)

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return the URL of a task, such as "grpc://host:port".

        It is never empty: TensorFlow's ``experimental_connect_to_cluster`` takes an empty one as "nothing to do".

        Args:
            task_type: the job; this resolver's own by default.
            task_id: the index; in the own job this resolver's own by default.
            rpc_layer: the scheme; this resolver's own by default, none at all if "".

        Raises:
            NoSuchTaskError: the view does not show that task, half of one is given, or none and the own one is unknown.
        """
        rpc_layer = _arguments.text_or_none(rpc_layer, "rpc_layer")
        job, index = self._named(task_type, task_id)
        membership = self.membership()
        if job is None or index is None:
            raise NoSuchTaskError("master() needs task_type and task_id: this process is not a task of the cluster")
        layer = next(one for one in (rpc_layer, self._rpc_layer, membership.view.rpc_layer) if one is not None)
        address = membership.address_of(job, index)
        return f"{layer}://{address}" if layer else address

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Count the accelerators of a task: the healthy ones that the device plugin granted it.

        Of the task that this process is only those count that the process can use, so that no strategy plans for a
        device that is not there; a warning names both numbers where they differ.  If its pod's limits name no device
        that is known here, such as with a DRA claim, what the process can use counts.  The arguments and errors are
        those of :meth:`master`; ``config_proto`` is not used, and TensorFlow's signature has it.

        Returns:
            Counts by TensorFlow's device type, such as {"GPU": 2}, zero for any other key; of all visible tasks
            together where no task is given and the own one is unknown.
        """
        del config_proto
        job, index = self._named(task_type, task_id)
        membership = self.membership()
        if not membership.view.name and (job, index) == (self._task_type, self._task_id):
            return defaultdict(int, accelerators.visible_accelerators() or {})
        if self._own is not None and (job, index) == self._own[:2]:
            return accelerators.count_usable(membership, self._own)
        return accelerators.count(membership, job, index)

    def device_filters(self) -> Any:
        """Return the view's device filters, declared up to maxReplicas, for TensorFlow's ``connect_to_cluster``.

        They are a ``tf.config.experimental.ClusterDeviceFilters``, or our class of that name without TensorFlow; None
        where the TFCluster declares none.  ``membership().device_filters()`` gives the same as plain values.
        """
        declared = self.membership().device_filters()
        if not any(texts for tasks in declared.values() for texts in tasks.values()):
            return None
        if tensorflow_api.is_installed():
            return tensorflow_api.device_filters(declared, "device_filters()")
        return read_filters(declared)

    def _named(self, task_type: str | None, task_id: int | None) -> tuple[str | None, int | None]:
        """Return which task a call is about; a job alone is a task in the own job only."""
        job, index = _arguments.text_or_none(task_type, "task_type"), _arguments.index_or_none(task_id, "task_id")
        if index is None and job in (None, self._task_type):
            index = self._task_id
        if job is None:
            job = self._task_type
        if (job is None) != (index is None):
            raise NoSuchTaskError(f"task_type {job!r} was given with task_id {index!r}: give both or neither")
        return job, index

    def __repr__(self) -> str:
        try:
            view = self.membership().view
            cluster = f"{view.namespace}/{view.name} epoch {view.epoch}" if view.name else "of a given ClusterSpec"
        except ViewError as error:
            cluster = f"({type(error).__name__})"
        return f"<{type(self).__name__} {cluster}, /job:{self._task_type}/task:{self._task_id}>"


tensorflow_api.register(TFClusterResolver)
