"""The Python client: TFClusters from notebooks and pipelines; the commands call it, too."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

from tfcluster.autoscalers import SCALED_JOB, autoscalers_of
from tfcluster.changes import Change, resumption, scaling, suspension
from tfcluster.errors import (
    ClusterFailedError,
    ConflictError,
    NoClusterError,
    NotFoundError,
    RefusedError,
    WaitTimeoutError,
)
from tfcluster.following import follow, follow_one
from tfcluster.goals import Goal
from tfcluster.kubernetes_api import PODS, TFCLUSTERS, KubernetesApi, Object
from tfcluster.log_batches import log_batches
from tfcluster.log_lines import LogLine
from tfcluster.log_stream import MOST_FOLLOWED, LogRequest
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
            goal: "ready", "succeeded", "failed", "finished", "suspended", "resized", "deleted", or
                ``condition=TYPE[=STATUS]``.
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
        until = float("inf") if timeout is None else time.monotonic() + timeout
        told = ""
        for body in follow_one(self.api, name, namespace, until=until):
            if body is not None:
                uid = uid or _uid_of(body)
            found = wanted.judge(body if body is not None and _uid_of(body) == uid else None)
            if found.outcome == "reached":
                if body is not None and wanted.word == "suspended":
                    self._await_no_pods(body, until, tell)
                return None if wanted.word == "deleted" else body
            if found.outcome == "impossible":
                raise ClusterFailedError(f"{name} cannot become {goal} any more: {found.words}")
            if found.words != told:
                told = found.words
                tell(told)
        raise WaitTimeoutError(f"{name} did not become {goal} within {timeout:g} s: {told}")

    def _await_no_pods(self, body: Object, until: float, tell: Callable[[str], None]) -> None:
        """Wait until the pods of a suspended TFCluster are gone, which its status does not tell."""
        about, told = body["metadata"], ""
        labels = f"{naming.LABEL_CLUSTER}={about['name']},!{naming.LABEL_KEPT}"
        try:
            for found in follow(self.api, PODS, about["namespace"], labels=labels, until=until):
                left = [pod for pod in found.values() if _owner_of(pod) == about["uid"]]
                if not left:
                    return
                words = f"{len(left)} of its pods are not gone yet"
                if words != told:
                    told = words
                    tell(words)
        except RefusedError:
            return  # who may not read pods has the operator's word
        raise WaitTimeoutError(f"{about['name']} is suspended, but {told}: {', '.join(sorted(_names(left)))}")

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
            FinishedError: it has finished.
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

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def __enter__(self) -> Self:
        """Enter; the connections are closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()


def _names(bodies: Iterable[Object]) -> Iterator[str]:
    return (str(body["metadata"]["name"]) for body in bodies)


def _owner_of(body: Object) -> str:
    """Give the UID of an object's controller."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")


def _uid_of(body: Object) -> str:
    return str(body["metadata"]["uid"])
