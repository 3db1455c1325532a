"""The Python client: TFClusters from notebooks and pipelines; the commands call it, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tfcluster.errors import NoClusterError
from tfcluster.kubernetes_api import TFCLUSTERS, KubernetesApi, Object
from tfcluster.log_batches import log_batches
from tfcluster.log_lines import LogLine
from tfcluster.log_stream import MOST_FOLLOWED, LogRequest


class Client:
    """TFClusters of one Kubernetes cluster, in one namespace where none is named.

    Args:
        api: the connection; by default what kubectl would use, or the service account of the pod.

    Raises:
        UnreachableError: there are no credentials.
    """

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

        Args:
            name: its name.
            namespace: its namespace, if not the client's.

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

        Args:
            namespace: their namespace; None is the client's, "" all of them.
            labels: a label selector.

        Raises:
            RefusedError: the API server said no.
        """
        return list(self.api.list(TFCLUSTERS, namespace, labels=labels))

    def apply(self, manifest: Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Object:
        """Create a TFCluster, or change it into what the manifest says, by server-side apply.

        Args:
            manifest: the TFCluster.
            force: take over fields that somebody else set to something else.
            dry_run: change nothing; only say what would come of it.

        Returns:
            The TFCluster after it.

        Raises:
            ConflictError: somebody else set a field to something else, and ``force`` is not given.
            RefusedError: the API server said no; the words name the field.
        """
        namespace = (manifest.get("metadata") or {}).get("namespace")
        return self.api.apply(TFCLUSTERS, manifest, namespace, force=force, dry_run=dry_run)

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
        tell: Callable[[str], None] = lambda _: None,
    ) -> Iterator[LogLine]:
        """Give the lines of tasks' logs: those of a task in order and each once, of many tasks as they come.

        A task goes on in the pod that replaces another.  A stream that breaks is opened again where it was.  Close
        the iterator to stop before its end.

        Args:
            name: the TFCluster's name.
            tasks: JOB for all tasks of a job, JOB/INDEX for one; none means all.
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
        request = LogRequest(tasks, follow, previous, container, tail, since_seconds, limit)
        for batch in log_batches(self.api, name, namespace, request, tell):
            yield from batch

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def __enter__(self) -> Self:
        """Enter; the connections are closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()
