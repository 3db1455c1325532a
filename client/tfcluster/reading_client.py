"""The Python client, as far as it changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from tfcluster.errors import NoClusterError, RefusedError
from tfcluster.event_following import follow_events
from tfcluster.event_log import Event, events_of
from tfcluster.goals import Goal
from tfcluster.kubernetes_api import EVENTS, PODS, TFCLUSTERS, KubernetesApi, Object
from tfcluster.live_cluster import ClusterStatus, status_of
from tfcluster.log_batches import log_batches
from tfcluster.log_lines import LogLine
from tfcluster.log_stream import MOST_FOLLOWED, LogRequest
from tfcluster.waiting import wait_for
from tfcluster_operator.declaration import naming


def nobody(words: str) -> None:
    """Tell nobody."""
    del words


class ReadingClient:
    """The part of Client that changes nothing; see there."""

    def __init__(self, api: KubernetesApi | None = None) -> None:
        self.api = api or KubernetesApi.connect()

    @classmethod
    def connect(
        cls, *, kubeconfig: str | Path | None = None, context: str | None = None, namespace: str | None = None
    ) -> Self:
        """Connect as kubectl does; see KubernetesApi.connect."""
        return cls(KubernetesApi.connect(kubeconfig=kubeconfig, context=context, namespace=namespace))

    @property
    def namespace(self) -> str:
        """The namespace that is meant where none is named."""
        return self.api.namespace

    def get(self, name: str, namespace: str | None = None) -> Object:
        """Give a TFCluster as the API server has it.

        Raises:
            NoClusterError: there is none of that name.
            RefusedError: the API server said no.
        """
        found = self.api.find(TFCLUSTERS, name, namespace)
        if found is None:
            inside = self.namespace if namespace is None else namespace
            raise NoClusterError(
                f"there is no TFCluster {name} in namespace {inside}",
                hint="List what is there with `tfcluster status`, in all namespaces with -A.",
            )
        return found

    def list(self, namespace: str | None = None, *, labels: str = "") -> list[Object]:
        """Give all TFClusters.

        Raises:
            RefusedError: the API server said no.
        """
        return list(self.api.list(TFCLUSTERS, namespace, labels=labels))

    def status(self, name: str, namespace: str | None = None) -> ClusterStatus:
        """Say how a TFCluster stands, with its tasks.

        Raises:
            NoClusterError: there is none of that name.
            RefusedError: the API server said no.
        """
        body = self.get(name, namespace)
        try:
            labels = f"{naming.LABEL_CLUSTER}={name}"
            pods = self.api.list(PODS, body["metadata"]["namespace"], labels=labels).items
        except RefusedError:
            return status_of(body, None, time.time())
        return status_of(body, pods, time.time())

    def wait(
        self,
        name: str,
        goal: str = "ready",
        *,
        namespace: str | None = None,
        uid: str = "",
        timeout: float | None = None,
        tell: Callable[[str], None] = nobody,
    ) -> Object | None:
        """Wait until a TFCluster is as it should be.

        Args:
            name: its name.
            goal: "ready", "succeeded", "failed", "finished", "suspended", "resized", "updated",
                "deleted", or ``condition=TYPE[=STATUS]``.
            namespace: its namespace, if not the client's.
            uid: wait for this one; by default for the one that has the name now.
            timeout: how long at the most, in seconds; None waits for ever.
            tell: called with what is waited for, at once and whenever that changes.

        Raises:
            NoClusterError: there is none of that name.
            ClusterFailedError: it cannot come any more; the words say why.
            WaitTimeoutError: it took too long; the words say what was missing.
            RefusedError: the API server said no.
            ValueError: there is no such goal.
        """
        wanted = Goal.of(goal)
        if not uid and wanted.word != "deleted":
            uid = self.get(name, namespace)["metadata"]["uid"]
        return wait_for(self.api, name, wanted, namespace, uid=uid, timeout=timeout, tell=tell)

    def logs(
        self,
        name: str,
        tasks: Sequence[str] = (),
        namespace: str | None = None,
        *,
        follow: bool = False,
        previous: bool = False,
        container: str = "",
        tail: int | None = None,
        since_seconds: int | None = None,
        limit: int = MOST_FOLLOWED,
        tell: Callable[[str], None] = nobody,
    ) -> Iterator[LogLine]:
        """Give the lines of tasks' logs: those of a task in order and each once, of many tasks as they come.

        A task goes on in the pod that replaces another.  A stream that breaks is opened again where it was.  Close
        the iterator to stop before its end.

        Args:
            name: the TFCluster's name.
            tasks: JOB for all tasks of a job, JOB-INDEX for one; none means all.
            namespace: its namespace, if not the client's.
            follow: go on until the TFCluster has finished or is deleted, with tasks that are added.
            previous: instead, the failed pods of the tasks that are kept, and earlier containers of their pods.
            container: the container; "" means the one that runs the task.
            tail: how many lines from the end of each log that is there; None means all.
            since_seconds: how old its oldest line may be, in seconds; None means any age.
            limit: how many logs may be followed at once.
            tell: takes words: what is waited for, which pod follows which and why.

        Raises:
            NoClusterError: there is no such TFCluster.
            NoTaskError: it has no such task; the words list those that it has.
            RefusedError: the API server said no.
            UnreachableError: it does not answer, and ``follow`` is not given.
            TFClusterError: some logs could not be read; those that could were given.
        """
        request = LogRequest(
            (tasks,) if isinstance(tasks, str) else tasks, follow, previous, container, tail, since_seconds, limit
        )
        for batch in log_batches(self.api, name, namespace, request, tell):
            yield from batch

    def events(self, name: str, namespace: str | None = None, *, follow: bool = False) -> Iterator[Event]:
        """Give what happened to a TFCluster and its pods, the oldest first; Kubernetes keeps events for an hour.

        Raises:
            NoClusterError: there is none of that name, and no event tells of one.
            RefusedError: the API server said no.
        """
        body = self.api.find(TFCLUSTERS, name, namespace)
        if body is not None and follow:
            yield from follow_events(self.api, name, namespace, uid=body["metadata"]["uid"])
            return
        found = events_of(name, body, self.api.list(EVENTS, namespace))
        if body is None and not found:
            self.get(name, namespace)
        yield from found

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def __enter__(self) -> Self:
        """Enter; the connections are closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()
