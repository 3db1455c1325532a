"""The Python client: TFClusters from notebooks and pipelines; the commands call it, too."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal

from tfcluster.applying import Applying, check
from tfcluster.autoscalers import autoscalers_of
from tfcluster.changes import Change, resumption, scaling, suspension
from tfcluster.declaration import TFCluster
from tfcluster.errors import ConflictError, ManifestError, NotFoundError, RefusedError
from tfcluster.field_types import misfits
from tfcluster.kubernetes_api import PODS, TFCLUSTERS, Object
from tfcluster.live_cluster import RunningCluster
from tfcluster.manifest_files import Manifest
from tfcluster.reading_client import ReadingClient, nobody
from tfcluster.restarts import restart_of_jobs, restart_of_task
from tfcluster.running import Keep, running
from tfcluster.task_names import choose, declared
from tfcluster.waiting import wait_for_new_pods
from tfcluster_operator.declaration import naming

#: What becomes of the pods of a TFCluster that is deleted.
Cascade = Literal["background", "foreground", "orphan"]
_CONFLICT: Final = 409
_INVALID: Final = 422


class Client(ReadingClient):
    """TFClusters of one Kubernetes cluster, in one namespace where none is named.

    Args:
        api: the connection; by default what kubectl would use, or the service account of the pod.

    Raises:
        UnreachableError: there are no credentials.
    """

    def apply(self, manifest: TFCluster | Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Object:
        """Create an object, or change it into what the manifest says, by server-side apply.

        Args:
            manifest: a TFCluster, or any object that it needs, such as a ConfigMap.
            force: take over fields that somebody else set to something else.
            dry_run: change nothing; only say what would come of it.

        Returns:
            The object after it.

        Raises:
            ManifestError: it has no kind or name, or of a kind that the API server does not know.
            ConflictError: somebody else set a field to something else, and ``force`` is not given.
            RefusedError: the API server said no; the words name the field.
        """
        applying = Applying(self.api, force=force, dry_run=dry_run)
        return applying.apply_one(Manifest(_manifest_of(manifest), "the manifest", 0)).body

    def running(
        self,
        cluster: TFCluster | Mapping[str, Any],
        *,
        goal: str = "ready",
        timeout: float | None = 600.0,
        keep: Keep = False,
        tell: Callable[[str], None] = nobody,
    ) -> AbstractContextManager[RunningCluster]:
        """Run a TFCluster for as long as a ``with`` block.

        It is applied and waited for; at the end it is deleted, by its UID, also after an exception or Ctrl-C.  One
        that existed before is changed into what is said here, and is not deleted.

        Args:
            cluster: the TFCluster.
            goal: what to wait for before the block begins, as in wait.
            timeout: how long at the most, in seconds; None waits for ever.
            keep: True never deletes it, "on_error" leaves it where the block ends with an exception.
            tell: called with what is waited for, and with what stays.

        Raises:
            ClusterFailedError: it failed before the block began; the words say why.
            WaitTimeoutError: it took too long; the words say what was missing.
            ConflictError: it exists, and somebody else set a field to something else.
            RefusedError: the API server said no.
            ValueError: ``keep`` is nothing of these.
        """
        if keep not in (True, False, "on_error"):
            raise ValueError(f'keep is True, False or "on_error", not {keep!r}')
        manifest = _manifest_of(cluster)
        check(Manifest(manifest, "the manifest", 0))
        return running(self, manifest, goal=goal, timeout=timeout, keep=keep, tell=tell)

    def scale(
        self,
        name: str,
        replicas: int,
        *,
        job: str = "worker",
        namespace: str | None = None,
        uid: str = "",
        dry_run: bool = False,
        tell: Callable[[str], None] = nobody,
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
            NoClusterError: there is none of that name.
            ManifestError: it has no such job, or ``replicas`` are more than its maxReplicas.
            NotRunningError: it has finished.
            ConflictError: it was deleted and created again meanwhile.
            RefusedError: the API server said no.
        """
        body = self._this(name, namespace, uid)
        change = scaling(body, job, replicas, autoscalers_of(self.api, body, job))
        return self._change(body, change, dry_run=dry_run, tell=tell)

    def suspend(
        self,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        dry_run: bool = False,
        tell: Callable[[str], None] = nobody,
    ) -> Object:
        """Delete a TFCluster's pods and keep everything else; the arguments and errors are those of scale."""
        body = self._this(name, namespace, uid)
        return self._change(body, suspension(body), dry_run=dry_run, tell=tell)

    def resume(
        self,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        dry_run: bool = False,
        tell: Callable[[str], None] = nobody,
    ) -> Object:
        """Start a suspended TFCluster again, from the beginning; the arguments and errors are those of scale."""
        body = self._this(name, namespace, uid)
        return self._change(body, resumption(body), dry_run=dry_run, tell=tell)

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
        tell: Callable[[str], None] = nobody,
    ) -> Object:
        """Start tasks again.

        A task gets a new pod at its address.  For a whole job its template is marked, so that updateStrategy decides
        how its pods are replaced.  Neither counts as a failure; complete tasks do not run again.

        Args:
            name: the TFCluster.
            tasks: JOB for a whole job, JOB-INDEX for one task; none means every job.
            namespace: its namespace, if not the client's.
            uid: restart it only if it still is this one.
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
        body = self._this(name, namespace, uid)
        inside, labels = body["metadata"]["namespace"], f"{naming.LABEL_CLUSTER}={name}"
        chosen = choose((tasks,) if isinstance(tasks, str) else tasks, declared(body), (), name)
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

    def _this(self, name: str, namespace: str | None, uid: str) -> Object:
        """Give a TFCluster; raises ConflictError where it is not the one of that UID."""
        body = self.get(name, namespace)
        if uid and _uid_of(body) != uid:
            raise _reborn(name)
        return body

    def _change(self, body: Object, change: Change, *, dry_run: bool, tell: Callable[[str], None]) -> Object:
        for words in change.words:
            tell(words)
        if not change.patch:
            return body
        about = body["metadata"]
        patches = [change.first, change.patch] if change.first else [change.patch]
        try:
            for one in patches:
                # NB: with its UID, so that the TFCluster is changed of which it was said, not a later one of that name.
                patch = {**one, "metadata": {"uid": about["uid"]}}
                body = self.api.patch(TFCLUSTERS, about["name"], patch, about["namespace"], dry_run=dry_run)
        except RefusedError as error:
            if error.status == _INVALID and "metadata.uid" in str(error):
                raise _reborn(about["name"]) from error
            raise
        return body

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
        tell: Callable[[str], None] = nobody,
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


def _uid_of(body: Object) -> str:
    return str(body["metadata"]["uid"])


def _reborn(name: str) -> ConflictError:
    words = f"{name} was deleted and created again meanwhile"
    return ConflictError(words, status=_CONFLICT, reason="Conflict", hint="Look at the new one, and ask again.")


def _manifest_of(cluster: TFCluster | Mapping[str, Any]) -> Object:
    if isinstance(cluster, TFCluster):
        return cluster.to_manifest()
    if problems := [*misfits(cluster, Mapping[str, Any], "the manifest")]:
        raise ManifestError("this is not a manifest:", problems)
    return dict(cluster)
