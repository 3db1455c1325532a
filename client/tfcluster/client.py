"""The Python client: TFClusters from notebooks and pipelines; the commands call it, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tfcluster.errors import ClusterFailedError, ManifestError, NoClusterError, WaitTimeoutError
from tfcluster.following import follow_one
from tfcluster.goals import Goal
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

    def wait(
        self,
        name: str,
        goal: str = "ready",
        *,
        namespace: str | None = None,
        timeout: float | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Object | None:
        """Wait until a TFCluster is as it should be.

        Args:
            name: its name.
            goal: "ready", "succeeded", "failed", "finished", "suspended", "resized", "deleted", or
                ``condition=TYPE[=STATUS]``.
            namespace: its namespace, if not the client's.
            timeout: how long at the most, in seconds; None waits for ever.
            tell: called with what is waited for, at once and whenever that changes.

        Returns:
            The TFCluster as it is then; None where it is gone.

        Raises:
            NoClusterError: there is none of that name.
            ClusterFailedError: it cannot come any more; the words say why.
            WaitTimeoutError: it took too long; the words say what was missing.
            RefusedError: the API server said no.
            ValueError: there is no such goal.
        """
        wanted = Goal.of(goal)
        until = float("inf") if timeout is None else time.monotonic() + timeout
        if wanted.word != "deleted":
            self.get(name, namespace)
        told = ""
        for body in follow_one(self.api, name, namespace, until=until):
            found = wanted.judge(body)
            if found.outcome == "reached":
                return body
            if found.outcome == "impossible":
                raise ClusterFailedError(f"{name} cannot become {goal} any more: {found.words}")
            if found.words != told:
                told = found.words
                tell(told)
        raise WaitTimeoutError(f"{name} did not become {goal} within {timeout:g} s: {told}")

    def scale(self, name: str, replicas: int, *, job: str = "worker", namespace: str | None = None) -> Object:
        """Change how many tasks a job has.

        Args:
            name: the TFCluster.
            replicas: how many there should be.
            job: the job.
            namespace: the TFCluster's namespace, if not the client's.

        Returns:
            The TFCluster after it; the tasks come and go later, see wait with "resized".

        Raises:
            NoClusterError: there is none of that name.
            ManifestError: it has no such job.
            RefusedError: the API server said no: more than maxReplicas, for example.
        """
        jobs = self.get(name, namespace)["spec"]["jobs"]
        if job not in jobs:
            raise ManifestError(f"{name} has no job {job}", hint=f"Its jobs are {', '.join(jobs)}.")
        change = {"spec": {"jobs": {job: {"replicas": replicas}}}}
        return self.api.patch(TFCLUSTERS, name, change, namespace)

    def suspend(self, name: str, namespace: str | None = None) -> Object:
        """Delete a TFCluster's pods and keep everything else; raises NotFoundError and RefusedError."""
        return self.api.patch(TFCLUSTERS, name, {"spec": {"suspend": True}}, namespace)

    def resume(self, name: str, namespace: str | None = None) -> Object:
        """Start the pods of a suspended TFCluster again; raises NotFoundError and RefusedError."""
        return self.api.patch(TFCLUSTERS, name, {"spec": {"suspend": False}}, namespace)

    def delete(self, name: str, namespace: str | None = None, *, uid: str = "") -> None:
        """Delete a TFCluster with everything that it owns.

        Args:
            name: its name.
            namespace: its namespace, if not the client's.
            uid: delete it only if it still is this one.

        Raises:
            NotFoundError: there is none of that name.
            ConflictError: another one has the name by now.
            RefusedError: the API server said no.
        """
        self.api.delete(TFCLUSTERS, name, namespace, uid=uid)

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def __enter__(self) -> Self:
        """Enter; the connections are closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()
