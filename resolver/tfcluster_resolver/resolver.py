"""The cluster resolver of a TFCluster's pods.

It decides where a resolver's view comes from, which task it speaks for, what a snapshot is, and what a watch yields;
:mod:`tfcluster_resolver.answers` holds what TensorFlow is told.  It connects to nothing.
"""

from __future__ import annotations

import copy
import os
from typing import Any, Self

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver._tensorflow import registration
from tfcluster_resolver.answers import ClusterAnswers
from tfcluster_resolver.cluster import Membership, NewEpoch, difference, own_task
from tfcluster_resolver.errors import ArgumentValueError, ViewError
from tfcluster_resolver.views.file import ViewFile
from tfcluster_resolver.views.frozen import FrozenView, view_of
from tfcluster_resolver.views.kubernetes import KubernetesViews
from tfcluster_resolver.views.source import ViewSource
from tfcluster_resolver.views.watch import Watch


class TFClusterResolver(ClusterAnswers):
    """The TFCluster that this pod is a task of, for TensorFlow.

    TensorFlow takes it as a ``tf.distribute.cluster_resolver.ClusterResolver``, and it works the same where TensorFlow
    is not installed.  Where it is, :meth:`cluster_spec` and :meth:`device_filters` import it to give its own classes;
    nothing else does.  Each call reads the mounted view (one ``stat`` while it is unchanged).  A strategy asks several
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
        ViewError: the view is missing, unreadable, malformed or too new.
        TaskIdentityError: the pod's environment names its task incompletely.
        ArgumentError: an argument is of another type, or a job of other tasks is given without an index.
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
                    f"half a task: task_type is {self._task_type!r}, no task_id is given, and this pod is {self._own}; "
                    "give both or neither"
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
        """Make a resolver of a written cluster: for tests and laptops.  No file and no environment is looked at.

        Its accelerators are those that this process sees, for the given task, and none for any other.

        Args:
            cluster: what ``tf.train.ClusterSpec`` takes, or a ClusterSpec of ours or TensorFlow's, or a ClusterDef.
            task_type: the job of the task to speak for.
            task_id: that task's index.
            rpc_layer: TensorFlow's rpc layer.
            device_filters: ClusterDeviceFilters of ours or TensorFlow's, or a mapping from job to a mapping from index
                to a list of filters.

        Returns:
            A resolver at epoch 0 for ever.

        Raises:
            ArgumentTypeError: an argument is of another type, or holds one.
            ArgumentValueError: a task index is no number of 0 or more.
            DeviceNameError: TensorFlow could not read a filter.
        """
        view = view_of(cluster, rpc_layer=rpc_layer, device_filters=device_filters)
        return cls(task_type, task_id, source=FrozenView(view))

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> Self:
        """Make a resolver of one view file, such as a copy of a pod's.  The environment is not looked at.

        Args:
            path: the file; it is read at each call, also after the current directory changed.
            task_type: the job of the task to speak for.
            task_id: that task's index.
            rpc_layer: TensorFlow's rpc layer; the file's by default.

        Returns:
            A resolver.

        Raises:
            ViewError: the file is missing, unreadable, malformed or too new.
            ArgumentError: an argument is of another type.
        """
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

        It needs the package ``kubernetes`` and the right to list ConfigMaps in the namespace; with the right to get
        TFClusters it also tells a cluster that is not published yet from one that is not there.  It sees what a task
        without device filters sees; a task that every view hides is not in it.  Each call asks the API server, so give
        a strategy a :meth:`snapshot`.

        Args:
            name: the TFCluster's name.
            namespace: its namespace; by default the pod's own, or that of the kubeconfig's context.
            task_type: the job of the task to speak for.
            task_id: that task's index.
            rpc_layer: TensorFlow's rpc layer; the TFCluster's by default.
            kubeconfig: a kubeconfig file; by default the pod's service account, else that of ``kubectl``.
            context: a context in it; its current one by default.

        Returns:
            A resolver.

        Raises:
            KubernetesClientNotFoundError: the package is not installed.
            KubernetesConfigurationError: there is no kubeconfig and no service account, or no such context.
            KubernetesRightsError: the API server refuses the user.
            KubernetesUnreachableError: it does not answer.
            NoSuchClusterError: there is no such TFCluster.
            NotPublishedError: its views are not published yet.
            ArgumentError: an argument is of another type, or no name.
        """
        source = KubernetesViews(name, namespace, kubeconfig=kubeconfig, context=context)
        return cls(task_type, task_id, rpc_layer, source=source)

    def snapshot(self) -> Self:
        """Freeze what the resolver answers now.

        Returns:
            A resolver of the same class and task that gives the same epoch for ever.
        """
        return self._frozen_at(self._source.view())

    def _frozen_at(self, view: contract.View) -> Self:
        frozen = copy.copy(self)
        frozen._source = FrozenView(view, live=self._live())  # noqa: SLF001 - of the same class
        return frozen

    def _live(self) -> ViewSource | None:
        return self._source.live if isinstance(self._source, FrozenView) else self._source

    def _is_snapshot(self) -> bool:
        return isinstance(self._source, FrozenView)

    def _live_again(self) -> Self:
        """Give this resolver as it follows its cluster, also where it is a snapshot."""
        live = copy.copy(self)
        live._source = self._live() or self._source  # noqa: SLF001 - of the same class
        return live

    def watch(self, timeout: float | None = None) -> Watch[NewEpoch]:
        """Wait for the cluster to change; each new epoch is yielded as it comes.

        A new epoch is known within 100 ms after the kubelet swapped the mounted files, and within a second or so by
        :meth:`from_kubernetes`.  Of several quick ones the last is never missed.  The watch of a :meth:`snapshot`
        begins at the snapshot's epoch, so nothing is lost between freezing and watching::

            cluster = TFClusterResolver().snapshot()
            for change in cluster.watch():
                print(change.epoch, change.added, change.removed)

        A lost accelerator is no epoch.  The descriptor of the watch is open while the iterator is in use; it may be
        used in a thread, by one thread at a time, and in a process that was forked.

        Args:
            timeout: end after so many seconds without a new epoch, counted again from each time that the next one is
                asked for; 0 looks once, None never ends.

        Returns:
            An iterator over the new epochs, with a ``close()``; empty for :meth:`from_spec`, which never changes.

        Raises:
            ViewError: at once where the view cannot be read, and from the iterator where it could not for 5 seconds;
                the iterator goes on when it is asked again.
            ArgumentError: the timeout is no number.
        """
        timeout = _arguments.seconds_or_none(timeout, "timeout")
        live = self._live() or self._source

        def read() -> Membership:
            return Membership(view=live.view(), own=self._own)

        return Watch(read, self.membership(), live.notice(), timeout, self._new_epoch)

    def _new_epoch(self, before: Membership, now: Membership) -> NewEpoch:
        added, removed, filters_changed = difference(before, now)
        resolver = self._frozen_at(now.view)
        return NewEpoch(now.view.epoch, added, removed, filters_changed, resolver, leaving=now.leaving())

    def __repr__(self) -> str:
        try:
            view = self.membership().view
            cluster = f"{view.namespace}/{view.name} epoch {view.epoch}" if view.name else "of a given ClusterSpec"
        except ViewError as error:
            cluster = f"({type(error).__name__})"
        return f"<{type(self).__name__} {cluster}, /job:{self._task_type}/task:{self._task_id}>"


registration.register(TFClusterResolver)
