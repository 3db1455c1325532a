"""The Python client: TFClusters from notebooks and pipelines; the commands call it, too."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

from tfcluster.autoscalers import SCALED_JOB, autoscalers_of
from tfcluster.changes import Change, resumption, scaling, suspension
from tfcluster.errors import (
    ConflictError,
    NoClusterError,
    NotFoundError,
    RefusedError,
)
from tfcluster.event_following import follow_events
from tfcluster.event_log import Event, events_of
from tfcluster.goals import Goal
from tfcluster.kubernetes_api import EVENTS, PODS, TFCLUSTERS, KubernetesApi, Object
from tfcluster.log_batches import log_batches
from tfcluster.log_lines import LogLine
from tfcluster.log_stream import MOST_FOLLOWED, LogRequest
from tfcluster.restarts import restart_of_jobs, restart_of_task
from tfcluster.task_names import choose, declared
from tfcluster.waiting import wait_for, wait_for_new_pods
from tfcluster_operator.model import naming

#: What becomes of the pods of a TFCluster that is deleted.
Cascade = Literal["background", "foreground", "orphan"]
_INVALID: Final = 422


def _nobody(words: str) -> None:
    """Tell nobody."""
    del words


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
        tell: Callable[[str], None] = _nobody,
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
        uid: str = "",
        timeout: float | None = None,
        tell: Callable[[str], None] = _nobody,
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
        if not uid and wanted.word != "deleted":
            uid = _uid_of(self.get(name, namespace))
        return wait_for(self.api, name, wanted, namespace, uid=uid, timeout=timeout, tell=tell)

    def scale(
        self,
        name: str,
        replicas: int,
        *,
        job: str = "worker",
        namespace: str | None = None,
        dry_run: bool = False,
        tell: Callable[[str], None] = _nobody,
    ) -> Object:
        """Change how many tasks a job has.

        Args:
            name: the TFCluster.
            replicas: how many there should be.
            job: the job.
            namespace: the TFCluster's namespace, if not the client's.
            dry_run: change nothing; the API server says whether it would.
            tell: called with what will happen, before it is done.

        Returns:
            The TFCluster after it; the tasks come and go later, see wait with "resized".

        Raises:
            NoClusterError: there is none of that name.
            ManifestError: it has no such job, or ``replicas`` are more than its maxReplicas.
            NotRunningError: it has finished.
            ConflictError: it was deleted and created again meanwhile.
            RefusedError: the API server said no.
        """
        body = self.get(name, namespace)
        scalers = autoscalers_of(self.api, body) if job == SCALED_JOB else ()
        return self._change(body, scaling(body, job, replicas, scalers), dry_run=dry_run, tell=tell)

    def suspend(
        self,
        name: str,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        tell: Callable[[str], None] = _nobody,
    ) -> Object:
        """Delete a TFCluster's pods and keep everything else; the arguments and errors are those of scale."""
        body = self.get(name, namespace)
        return self._change(body, suspension(body), dry_run=dry_run, tell=tell)

    def resume(
        self,
        name: str,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        tell: Callable[[str], None] = _nobody,
    ) -> Object:
        """Start a suspended TFCluster again, from the beginning; the arguments and errors are those of scale."""
        body = self.get(name, namespace)
        return self._change(body, resumption(body), dry_run=dry_run, tell=tell)

    def restart(
        self,
        name: str,
        tasks: Sequence[str] = (),
        namespace: str | None = None,
        *,
        wait: bool = False,
        timeout: float | None = None,
        dry_run: bool = False,
        tell: Callable[[str], None] = _nobody,
    ) -> Object:
        """Start tasks again.

        A task gets a new pod at its address.  For a whole job its template is marked, so that updateStrategy decides
        how its pods are replaced.  Neither counts as a failure; complete tasks do not run again.

        Args:
            name: the TFCluster.
            tasks: JOB for a whole job, JOB/INDEX for one task; none means every job.
            namespace: its namespace, if not the client's.
            wait: come back when the new pods are ready.
            timeout: how long to wait at the most, in seconds; None waits for ever.
            dry_run: change nothing; the API server says whether it would.
            tell: called with what will happen before it is done, and then with what is waited for.

        Returns:
            The TFCluster after it.

        Raises:
            NoClusterError: there is none of that name.
            NoTaskError: it has no such job or task.
            WaitTimeoutError: it took too long.
            ClusterFailedError: the cluster failed meanwhile, or updateStrategy is OnDelete and ``wait`` is given.
            NotRunningError: it has finished or is suspended, or the task is complete or has not started.
            ConflictError: the pod, or the TFCluster, is another one by now.
            RefusedError: the API server said no.
        """
        body = self.get(name, namespace)
        inside, labels = body["metadata"]["namespace"], f"{naming.LABEL_CLUSTER}={name}"
        chosen = choose(tasks, declared(body), (), name)
        jobs = sorted(declared(body)) if chosen.everything else sorted(chosen.jobs)
        single = sorted(task for task in chosen.tasks if task.job not in chosen.jobs)
        pods = self.api.list(PODS, inside, labels=labels).items if single else ()
        alone = {task: restart_of_task(body, pods, task, time.time()) for task in single}
        if jobs:
            body = self._change(body, restart_of_jobs(body, jobs, time.time()), dry_run=dry_run, tell=tell)
        for one in alone.values():
            for words in one.words:
                tell(words)
            if one.uid:
                self.api.delete(PODS, one.pod, inside, uid=one.uid, dry_run=dry_run)
        if wait and jobs and not dry_run:
            self.wait(name, "updated", namespace=namespace, uid=_uid_of(body), timeout=timeout, tell=tell)
        if wait and alone and not dry_run:
            old = {task: one.uid for task, one in alone.items()}
            wait_for_new_pods(self.api, body, old, timeout=timeout, tell=tell)
        return body

    def _change(self, body: Object, change: Change, *, dry_run: bool, tell: Callable[[str], None]) -> Object:
        for words in change.words:
            tell(words)
        if not change.patch:
            return body
        about = body["metadata"]
        # NB: with its UID, so that the TFCluster is changed of which it was said, and not a later one of that name.
        patch = {**change.patch, "metadata": {"uid": about["uid"]}}
        try:
            return self.api.patch(TFCLUSTERS, about["name"], patch, about["namespace"], dry_run=dry_run)
        except RefusedError as error:
            if error.status == _INVALID and "metadata.uid" in str(error):
                words = f"{about['name']} was deleted and created again meanwhile"
                raise ConflictError(words, status=error.status, hint="Look at the new one, and ask again.") from error
            raise

    def delete(
        self,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        cascade: Cascade | None = None,
        wait: bool = False,
        timeout: float | None = None,
        dry_run: bool = False,
        tell: Callable[[str], None] = _nobody,
    ) -> None:
        """Delete a TFCluster with everything that it owns.

        Args:
            name: its name.
            namespace: its namespace, if not the client's.
            uid: delete it only if it still is this one.
            cascade: "background" deletes the pods after it, "foreground" before it, and "orphan" leaves them; by
                default "foreground" where it is waited for, else "background".
            wait: come back when it is gone, and its pods with it.
            timeout: how long to wait at the most, in seconds; None waits for ever.
            dry_run: delete nothing; the API server says whether it would.
            tell: called with what is waited for.

        Raises:
            NoClusterError: there is none of that name.
            ConflictError: another one has the name by now.
            WaitTimeoutError: it took too long; the words say what keeps it.
            RefusedError: the API server said no.
        """
        body = self.get(name, namespace)
        uid = uid or _uid_of(body)
        how = (cascade or ("foreground" if wait else "background")).capitalize()
        with contextlib.suppress(NotFoundError):  # somebody else was faster
            self.api.delete(TFCLUSTERS, name, namespace, uid=uid, propagation=how, dry_run=dry_run)
        if wait and not dry_run:
            self.wait(name, "deleted", namespace=namespace, uid=uid, timeout=timeout, tell=tell)

    def events(self, name: str, namespace: str | None = None, *, follow: bool = False) -> Iterator[Event]:
        """Give what happened to a TFCluster and its pods, the oldest first; Kubernetes keeps events for an hour.

        Args:
            name: the TFCluster; of one that is gone, its last events are given.
            namespace: its namespace, if not the client's.
            follow: go on with what comes, until the TFCluster is gone.

        Raises:
            NoClusterError: there is none of that name, and no event tells of one.
            RefusedError: the API server said no.
        """
        body = self.api.find(TFCLUSTERS, name, namespace)
        if body is not None and follow:
            yield from follow_events(self.api, name, namespace, uid=_uid_of(body))
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


def _uid_of(body: Object) -> str:
    return str(body["metadata"]["uid"])
