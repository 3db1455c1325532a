"""Waiting until a TFCluster is as it should be, and telling what is missing on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tfcluster.errors import ClusterFailedError, RefusedError, WaitTimeoutError
from tfcluster.following import follow, follow_one
from tfcluster.goals import Goal
from tfcluster.kubernetes_api import PODS, KubernetesApi, Object
from tfcluster.task_names import TaskName, task_of
from tfcluster_operator.declaration import naming


def wait_for(
    api: KubernetesApi,
    name: str,
    goal: Goal,
    namespace: str | None,
    *,
    uid: str,
    timeout: float | None,
    tell: Callable[[str], None],
) -> Object | None:
    """Wait; the arguments, the result and the errors are those of ``Client.wait``.

    With uid "", it is the first TFCluster of that name that is seen.
    """
    until = float("inf") if timeout is None else time.monotonic() + timeout
    told = ""
    for body in follow_one(api, name, namespace, until=until):
        if body is not None:
            uid = uid or body["metadata"]["uid"]
        found = goal.judge(body if body is not None and body["metadata"]["uid"] == uid else None)
        if found.outcome == "reached":
            if body is not None and goal.word == "suspended":
                _await_no_pods(api, body, until, tell)
            return None if goal.word == "deleted" else body
        if found.outcome == "impossible":
            raise ClusterFailedError(f"{name} cannot become {goal} any more: {found.words}")
        if found.words != told:
            told = found.words
            tell(told)
    raise WaitTimeoutError(f"{name} did not become {goal} within {timeout:g} s: {told}")


def wait_for_new_pods(
    api: KubernetesApi,
    body: Object,
    old: Mapping[TaskName, str],
    *,
    timeout: float | None,
    tell: Callable[[str], None],
) -> None:
    """Wait until each of some tasks has another pod, which is ready or has ended with 0.

    Raises:
        WaitTimeoutError: it took too long; the words say what was missing.
        RefusedError: the API server said no.
    """
    about, told = body["metadata"], ""
    until = float("inf") if timeout is None else time.monotonic() + timeout
    labels = f"{naming.LABEL_CLUSTER}={about['name']},!{naming.LABEL_KEPT}"
    for found in follow(api, PODS, about["namespace"], labels=labels, until=until):
        works = {task_of(one) for one in found.values() if one["metadata"]["uid"] not in old.values() and _works(one)}
        left = sorted(task for task in old if task not in works)
        if not left:
            return
        words = f"{', '.join(map(str, left))} not ready yet in a new pod"
        if words != told:
            told = words
            tell(words)
    raise WaitTimeoutError(f"{about['name']}: within {timeout:g} s, {told}")


def _works(pod: Object) -> bool:
    status = pod.get("status") or {}
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    return "deletionTimestamp" not in pod["metadata"] and (ready or status.get("phase") == "Succeeded")


def _await_no_pods(api: KubernetesApi, body: Object, until: float, tell: Callable[[str], None]) -> None:
    """Wait until the pods of a suspended TFCluster are gone, which its status does not tell."""
    about, told = body["metadata"], ""
    labels = f"{naming.LABEL_CLUSTER}={about['name']},!{naming.LABEL_KEPT}"
    left: list[str] = []
    try:
        for found in follow(api, PODS, about["namespace"], labels=labels, until=until):
            left = sorted(one["metadata"]["name"] for one in found.values() if _owner_of(one) == about["uid"])
            if not left:
                return
            words = f"{len(left)} of its pods are not gone yet"
            if words != told:
                told = words
                tell(words)
    except RefusedError:
        return  # who may not read pods has the operator's word
    raise WaitTimeoutError(f"{about['name']} is suspended, but pods are not gone yet: {', '.join(left)}")


def _owner_of(body: Object) -> str:
    """Give the UID of an object's controller."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")
