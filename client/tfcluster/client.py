"""TFClusters from Python: the client, a handle on one TFCluster, and the status as typed values."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from tfcluster.apply import Applying, change_cluster, check, manifest_of, recreated_error
from tfcluster.changes import restart, resumption, scaling, suspension
from tfcluster.cluster_status import ClusterStatus
from tfcluster.errors import ConflictError, NotFoundError
from tfcluster.events import Event, cluster_events
from tfcluster.kube.api import PODS, TFCLUSTERS, KubernetesApi, Object
from tfcluster.logs.reader import LogLine
from tfcluster.logs.stream import MOST_FOLLOWED, LogRequest, log_batches
from tfcluster.manifest.files import Manifest
from tfcluster.manifest.python import TFCluster
from tfcluster.status.load import look
from tfcluster.wait import GOALS, wait_for, wait_for_new_pods
from tfcluster_operator.declaration import naming


def ignore(words: str) -> None:
    del words


#: Whether the TFCluster stays at the end: never, always, or where the block ended with an exception.
Keep = Literal[False, True, "on_error"]


class Client:
    """TFClusters of one Kubernetes cluster, in one namespace where none is named.

    A method that names a TFCluster raises NoClusterError if it does not exist; each raises RefusedError if the API
    server says no, and UnreachableError if it does not answer.

    Args:
        api: the connection; by default what kubectl would use, or the service account of the pod.

    Raises:
        UnreachableError: credentials are missing.
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
        """The namespace that is used if none is given."""
        return self.api.namespace

    def get(self, name: str, namespace: str | None = None) -> Object:
        """Return a TFCluster as the API server has it."""
        return self.api.cluster(name, namespace)

    def list(self, namespace: str | None = None, *, labels: str = "") -> list[Object]:
        """Return all TFClusters."""
        return list(self.api.list(TFCLUSTERS, namespace, labels=labels))

    def status(self, name: str, namespace: str | None = None) -> ClusterStatus:
        """Say how a TFCluster stands, with its tasks."""
        return ClusterStatus.of(*look(self.api, name, namespace))

    def wait(
        self,
        name: str,
        goal: str = "ready",
        *,
        namespace: str | None = None,
        uid: str = "",
        timeout: float | None = None,
        tell: Callable[[str], None] = ignore,
    ) -> Object | None:
        """Wait until a TFCluster is as it should be.

        Args:
            name: its name.
            goal: "ready", "succeeded", "failed", "finished", "suspended", "resized", "updated" or "deleted".
            namespace: its namespace, if not the client's.
            uid: wait for this one; by default for the one that has the name now.
            timeout: how long at the most, in seconds; None waits forever.
            tell: called with what is waited for, immediately and whenever that changes.

        Raises:
            ClusterFailedError: the goal cannot be reached any longer; the message says why.
            WaitTimeoutError: it took too long; the message says what was missing.
            ValueError: the goal is unknown.
        """
        if goal not in GOALS:
            raise ValueError(f"{goal}: wait for one of {', '.join(GOALS)}")
        if not uid and goal != "deleted":
            uid = self.get(name, namespace)["metadata"]["uid"]
        return wait_for(self.api, name, goal, namespace, uid=uid, timeout=timeout, tell=tell)

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
        tell: Callable[[str], None] = ignore,
    ) -> Iterator[LogLine]:
        """Return the lines of tasks' logs: those of a task in order and each once, of many tasks as they come.

        A task continues in the pod that replaces another. A stream that breaks is opened again at the same line. Close
        the iterator to stop before its end.

        Args:
            name: the TFCluster's name.
            tasks: JOB for all tasks of a job, JOB-INDEX for one; none means all.
            namespace: its namespace, if not the client's.
            follow: continue until the TFCluster has finished or is deleted, with tasks that are added.
            previous: instead, the failed pods of the tasks that are kept, and earlier containers of their pods.
            container: the container; "" means the one that runs the task.
            tail: how many lines from the end of each log that is there; None means all.
            since_seconds: how old its oldest line can be, in seconds; None means any age.
            limit: the largest number of tasks with which following begins.
            tell: called with messages: what is waited for, which pod follows which and why.

        Raises:
            NoTaskError: it does not have such a task; the message lists its jobs and tasks.
            TFClusterError: some logs could not be read; those that could were given.
        """
        request = LogRequest(
            (tasks,) if isinstance(tasks, str) else tasks, follow, previous, container, tail, since_seconds, limit
        )
        for batch in log_batches(self.api, name, namespace, request, tell):
            yield from batch

    def events(self, name: str, namespace: str | None = None, *, follow: bool = False) -> Iterator[Event]:
        """Return the events of a TFCluster, also of a deleted one, and its pods; Kubernetes keeps them for an hour."""
        yield from cluster_events(self.api, name, namespace, follow=follow)

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def __enter__(self) -> Self:
        """Enter; the connections are closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def apply(self, manifest: TFCluster | Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Object:
        """Create an object, or change it into what the manifest says, by server-side apply.

        Args:
            manifest: a TFCluster, or any object that it needs, such as a ConfigMap.
            force: take over fields that another field manager set to other values.
            dry_run: change nothing; return what would result.

        Returns:
            The object after the change.

        Raises:
            ManifestError: its kind or name is missing, or the API server does not serve its kind.
            ConflictError: another field manager set a field to another value, and ``force`` is not given.
            RefusedError: the API server rejected it; the message names the field.
        """
        applying = Applying(self.api, force=force, dry_run=dry_run)
        return applying.apply_one(Manifest(manifest_of(manifest), "the manifest", 0)).body

    @contextlib.contextmanager
    def running(
        self,
        cluster: TFCluster | Mapping[str, Any],
        *,
        goal: str = "ready",
        timeout: float | None = 600.0,
        keep: Keep = False,
        tell: Callable[[str], None] = ignore,
    ) -> Iterator["RunningCluster"]:
        """Run a TFCluster for as long as a ``with`` block.

        It is applied and waited for; at the end it is deleted, by its UID, also after an exception or Ctrl-C.  One
        that existed before is changed into what is said here, and is not deleted.

        Args:
            cluster: the TFCluster.
            goal: what to wait for before the block begins, as in wait.
            timeout: how long at the most, in seconds; None waits forever.
            keep: True never deletes it, "on_error" keeps it if the block ends with an exception.
            tell: called with what is waited for, and with what is kept.

        Raises:
            ClusterFailedError: it failed before the block began; the message says why.
            WaitTimeoutError: it took too long; the message says what was missing.
            ConflictError: it exists, and another field manager set a field to another value.
            ValueError: ``keep`` is not one of these values.
        """
        if keep not in (True, False, "on_error"):
            raise ValueError(f'keep is True, False or "on_error", not {keep!r}')
        manifest = manifest_of(cluster)
        check(Manifest(manifest, "the manifest", 0))
        until = None if timeout is None else time.monotonic() + timeout
        name, namespace = manifest["metadata"]["name"], manifest["metadata"].get("namespace") or self.namespace
        before = self.api.find(TFCLUSTERS, name, namespace)
        if before is not None and "deletionTimestamp" in before["metadata"]:
            uid = before["metadata"]["uid"]
            self.wait(name, "deleted", namespace=namespace, uid=uid, timeout=_left(until), tell=tell)
        body, created = self.api.apply(TFCLUSTERS, manifest, namespace)
        running = RunningCluster(self, name, namespace, body["metadata"]["uid"])
        if not created:
            tell(f"{name} exists already: it is used as it is declared here, and stays at the end")
        failed = True
        try:
            running.wait(goal, timeout=_left(until), tell=tell)
            yield running
            failed = False
        finally:
            if created and not (keep is True or (keep == "on_error" and failed)):
                # If it was deleted, or another object has the name now, there is no need to delete it.
                with contextlib.suppress(NotFoundError, ConflictError):
                    self.api.delete(TFCLUSTERS, name, namespace, uid=running.uid)
            elif created:
                tell(f"{name} stays; delete it with: tfcluster delete {name} -n {namespace}")

    def scale(
        self,
        name: str,
        replicas: int,
        *,
        job: str = "worker",
        namespace: str | None = None,
        uid: str = "",
        dry_run: bool = False,
        tell: Callable[[str], None] = ignore,
    ) -> Object:
        """Change how many tasks a job has.

        Args:
            name: the TFCluster.
            replicas: how many there should be.
            job: the job.
            namespace: the TFCluster's namespace, if not the client's.
            uid: change it only if it still is this one.
            dry_run: change nothing; the API server says whether it would.
            tell: called with what will happen, before it is done.

        Returns:
            The TFCluster after it; the tasks come and go later, see wait with "resized".

        Raises:
            ManifestError: it does not have such a job, or ``replicas`` are more than its maxReplicas.
            NotRunningError: it has finished.
            ConflictError: it was deleted and created again in the meantime.
        """
        body = self._this(name, namespace, uid)
        change = scaling(body, job, replicas)
        return change_cluster(self.api, body, change, dry_run=dry_run, tell=tell)

    def suspend(
        self,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        dry_run: bool = False,
        tell: Callable[[str], None] = ignore,
    ) -> Object:
        """Delete a TFCluster's pods and keep everything else; the arguments and errors are those of scale."""
        body = self._this(name, namespace, uid)
        return change_cluster(self.api, body, suspension(body), dry_run=dry_run, tell=tell)

    def resume(
        self,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        dry_run: bool = False,
        tell: Callable[[str], None] = ignore,
    ) -> Object:
        """Start a suspended TFCluster again, from the beginning; the arguments and errors are those of scale."""
        body = self._this(name, namespace, uid)
        return change_cluster(self.api, body, resumption(body), dry_run=dry_run, tell=tell)

    def restart(
        self,
        name: str,
        tasks: Sequence[str] = (),
        namespace: str | None = None,
        *,
        uid: str = "",
        wait: bool = False,
        timeout: float | None = None,
        dry_run: bool = False,
        tell: Callable[[str], None] = ignore,
    ) -> Object:
        """Start tasks again.

        A task gets a new pod at its address, and so do all tasks of a job, by updateStrategy one after the other if
        that is RollingUpdate.  It is not counted as a failure; complete tasks do not run again.

        Args:
            name: the TFCluster.
            tasks: JOB for a whole job, JOB-INDEX for one task; none means every job.
            namespace: its namespace, if not the client's.
            uid: restart it only if it still is this one.
            wait: come back when the new pods are ready.
            timeout: how long to wait at the most, in seconds; None waits forever.
            dry_run: change nothing; the API server says whether it would.
            tell: called with what will happen before it is done, and then with what is waited for.

        Returns:
            The TFCluster after it.

        Raises:
            NoTaskError: it does not have such a job or task.
            WaitTimeoutError: it took too long.
            ClusterFailedError: the cluster failed in the meantime.
            NotRunningError: it has finished or is suspended, or the task is complete or has not started.
            ConflictError: the pod, or the TFCluster, is another one by now.
        """
        body = self._this(name, namespace, uid)
        inside = body["metadata"]["namespace"]
        pods = self.api.list(PODS, inside, labels=f"{naming.LABEL_CLUSTER}={name}")
        change, alone = restart(body, pods, (tasks,) if isinstance(tasks, str) else tasks, time.time())
        body = change_cluster(self.api, body, change, dry_run=dry_run, tell=tell)
        for one in alone.values():
            for words in one.words:
                tell(words)
            if one.uid:
                self.api.delete(PODS, one.pod, inside, uid=one.uid, dry_run=dry_run)
        if wait and change.patch and not dry_run:
            self.wait(name, "updated", namespace=namespace, uid=body["metadata"]["uid"], timeout=timeout, tell=tell)
        if wait and alone and not dry_run:
            old = {task: one.uid for task, one in alone.items()}
            wait_for_new_pods(self.api, body, old, timeout=timeout, tell=tell)
        return body

    def _this(self, name: str, namespace: str | None, uid: str) -> Object:
        """Return a TFCluster; raises ConflictError if its UID is another one."""
        body = self.get(name, namespace)
        if uid and body["metadata"]["uid"] != uid:
            raise recreated_error(name)
        return body

    def delete(
        self,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        wait: bool = False,
        timeout: float | None = None,
        dry_run: bool = False,
        tell: Callable[[str], None] = ignore,
    ) -> None:
        """Delete a TFCluster with everything that it owns.

        Args:
            name: its name.
            namespace: its namespace, if not the client's.
            uid: delete it only if it still has this UID.
            wait: delete its pods before it, and return when all are deleted.
            timeout: how long to wait at the most, in seconds; None waits forever.
            dry_run: delete nothing; the API server says whether it would.
            tell: called with what is waited for.

        Raises:
            ConflictError: another object has the name now.
            WaitTimeoutError: it took too long; the message says what blocks the deletion.
        """
        body = self.get(name, namespace)
        uid = uid or body["metadata"]["uid"]
        how = "Foreground" if wait else "Background"
        with contextlib.suppress(NotFoundError):  # it was deleted in the meantime
            self.api.delete(TFCLUSTERS, name, namespace, uid=uid, propagation=how, dry_run=dry_run)
        if wait and not dry_run:
            self.wait(name, "deleted", namespace=namespace, uid=uid, timeout=timeout, tell=tell)


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """One TFCluster, by its UID: what changes it, or waits for it, never means another one of that name.

    Each method is that of Client with the name, the namespace and the UID filled in.

    Attributes:
        client: the client.
        name: its name.
        namespace: its namespace.
        uid: its UID.
    """

    client: Client
    name: str
    namespace: str
    uid: str

    def status(self) -> ClusterStatus:
        """Return its status; see Client.status."""
        return self.client.status(self.name, self.namespace)

    def wait(
        self, goal: str = "ready", *, timeout: float | None = None, tell: Callable[[str], None] = ignore
    ) -> Object | None:
        """Wait until it is as it should be; see Client.wait."""
        return self.client.wait(self.name, goal, namespace=self.namespace, uid=self.uid, timeout=timeout, tell=tell)

    def logs(self, *tasks: str, follow: bool = False, **options: Any) -> Iterator[LogLine]:
        """Return the lines of tasks' logs; see Client.logs."""
        return self.client.logs(self.name, tasks, self.namespace, follow=follow, **options)

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """Return the events of it and of its pods; see Client.events."""
        return self.client.events(self.name, self.namespace, follow=follow)

    def scale(self, replicas: int, *, job: str = "worker", wait: bool = False, timeout: float | None = None) -> None:
        """Change how many tasks a job has; ``wait`` waits until they are ready and notified; see Client.scale."""
        self.client.scale(self.name, replicas, job=job, namespace=self.namespace, uid=self.uid)
        if wait:
            self.wait("resized", timeout=timeout)

    def suspend(self) -> None:
        """Delete its pods and keep everything else; see Client.suspend."""
        self.client.suspend(self.name, self.namespace, uid=self.uid)

    def resume(self) -> None:
        """Start it again, from the beginning; see Client.resume."""
        self.client.resume(self.name, self.namespace, uid=self.uid)

    def restart(self, *tasks: str, wait: bool = False, timeout: float | None = None) -> None:
        """Start tasks again; see Client.restart."""
        self.client.restart(self.name, tasks, self.namespace, uid=self.uid, wait=wait, timeout=timeout)

    def delete(self, *, wait: bool = False, timeout: float | None = None) -> None:
        """Delete it; see Client.delete."""
        self.client.delete(self.name, self.namespace, uid=self.uid, wait=wait, timeout=timeout)
