"""Wait for a TFCluster: the goals, their evaluation from its status, and the progress messages."""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from tfcluster.errors import ClusterFailedError, RefusedError, WaitTimeoutError
from tfcluster.kube.api import PODS, TFCLUSTERS, KubernetesApi, Object, Selection
from tfcluster.kube.watch import follow
from tfcluster.tasks import TaskName, controller_of, declared, task_of, verdict
from tfcluster.terminal import few
from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.parse import is_ours
from tfcluster_operator.report import conditions

GOALS: Final = ("ready", "succeeded", "failed", "finished", "suspended", "resized", "updated", "deleted")

_Object = Mapping[str, Any]


class Judgement(NamedTuple):
    """The evaluation of a goal, and what is waited for or why it cannot be reached, without a full stop."""

    outcome: Literal["reached", "waiting", "impossible"]
    words: str


def judge(goal: str, body: _Object | None) -> Judgement:
    if body is None:
        return Judgement("reached", "it is gone") if goal == "deleted" else Judgement("impossible", "it was deleted")
    if goal == "deleted":
        return Judgement("waiting", _leaving(body["metadata"]))
    if "deletionTimestamp" in body["metadata"]:
        return Judgement("impossible", "it is being deleted")
    if (unseen := _unseen(body)) is not None:
        return Judgement("waiting", unseen)
    found = conditions.by_type(body.get("status") or {})
    judges = {"ready": _ready, "suspended": _suspended, "resized": _resized, "updated": _updated}
    return judges[goal](body, found) if goal in judges else _finished(goal, body, found)


def _unseen(body: _Object) -> str | None:
    """Return None if the operator has seen the newest edit; before that, its status is outdated."""
    generation = int(body["metadata"].get("generation", 0))
    if int((body.get("status") or {}).get("observedGeneration") or 0) >= generation:
        return None
    if not is_ours(body):
        return f"the controller {body['spec']['managedBy']}, which is responsible for it, has not reported yet"
    return "the operator has not seen the newest edit yet; if that lasts, ask `tfcluster doctor`"


def _leaving(metadata: _Object) -> str:
    if "deletionTimestamp" not in metadata:
        return "it is not deleted yet"
    kept = metadata.get("finalizers") or ()
    return f"it is being deleted; the finalizers {', '.join(kept)} keep it" if kept else "it is being deleted"


def _message(condition: _Object | None) -> str:
    if condition is None:
        return "nothing is reported yet"
    return str(condition.get("message") or condition.get("reason") or "no reason is given").rstrip(".")


def _is(found: Mapping[str, _Object], kind: str) -> bool:
    return (found.get(kind) or {}).get("status") == "True"


def _verdict(body: _Object) -> str:
    """Return the verdict with its message, or ""."""
    return f"it has {how.rstrip('.')}" if (how := verdict(body)) else ""


def _hindrance(body: _Object, found: Mapping[str, _Object]) -> str:
    """Return why its tasks cannot become ready, or ""."""
    if words := _verdict(body):
        return words
    if _is(found, "Stalled"):
        return _message(found["Stalled"])
    return "it is suspended; start it with `tfcluster resume`" if body["spec"].get("suspend") else ""


def _ready(body: _Object, found: Mapping[str, _Object]) -> Judgement:
    if _is(found, "Ready"):
        return Judgement("reached", _message(found["Ready"]))
    if hindrance := _hindrance(body, found):
        return Judgement("impossible", hindrance)
    return Judgement("waiting", _message(found.get("Ready")))


def _finished(word: str, body: _Object, found: Mapping[str, _Object]) -> Judgement:
    if words := _verdict(body):
        reached = word == "finished" or _is(found, word.capitalize())
        return Judgement("reached" if reached else "impossible", words)
    if hindrance := _hindrance(body, found):
        return Judgement("impossible", hindrance)
    return Judgement("waiting", _message(found.get("Succeeded" if _is(found, "Ready") else "Ready")))


def _suspended(body: _Object, found: Mapping[str, _Object]) -> Judgement:
    # A cluster that waits in its queue has the condition Suspended, too, but no user has suspended it.
    if _is(found, "Suspended") and found["Suspended"].get("reason") != reasons.WAITING_FOR_QUOTA:
        return Judgement("reached", _message(found["Suspended"]))
    if words := _verdict(body):
        return Judgement("impossible", words)
    if not body["spec"].get("suspend"):
        return Judgement("impossible", "spec.suspend is false; suspend it with `tfcluster suspend`")
    return Judgement("waiting", _message(found.get("Suspended")))


def _resized(body: _Object, found: Mapping[str, _Object]) -> Judgement:
    """Evaluate whether every job has the declared number of tasks, and every running pod has their view."""
    if hindrance := _hindrance(body, found):
        return Judgement("impossible", hindrance)
    there_are = (body.get("status") or {}).get("jobs") or {}
    for name, replicas in declared(body).items():
        there = there_are.get(name) or {}
        ready = int(there.get("ready", 0)) + int(there.get("succeeded", 0))
        created = int(there.get("created", 0))
        if created > replicas:
            return Judgement("waiting", f"job {name} still has {created} pods, {replicas} are declared")
        if ready < replicas:
            count = f"{ready} of {replicas} tasks of job {name} are ready"
            return Judgement("waiting", f"{count}; {_message(found.get('Ready'))}")
    if not _is(found, "MembershipPublished"):
        return Judgement("waiting", _message(found.get("MembershipPublished")))
    return Judgement("reached", "every task is ready and every view is delivered")


def _updated(body: _Object, found: Mapping[str, _Object]) -> Judgement:
    """Evaluate whether every pod has the newest template and is ready."""
    current = found.get("UpToDate") or {}
    if current.get("reason") == reasons.WAITING_FOR_DELETE:
        return Judgement("impossible", _message(current))
    judgement = _ready(body, found)
    if judgement.outcome == "impossible" or _is(found, "UpToDate"):
        return judgement
    return Judgement("waiting", _message(current))


def wait_for(
    api: KubernetesApi,
    name: str,
    goal: str,
    namespace: str | None,
    *,
    uid: str,
    timeout: float | None,
    tell: Callable[[str], None],
) -> Object | None:
    """Wait; the arguments, the result and the errors are those of ``Client.wait``."""
    until, last = _end_of(timeout), ""
    for found in follow(api, Selection(TFCLUSTERS, namespace, fields=f"metadata.name={name}"), until=until):
        body = next(iter(found), None)
        if body is not None:
            uid = uid or body["metadata"]["uid"]
        judgement = judge(goal, body if body is not None and body["metadata"]["uid"] == uid else None)
        if judgement.outcome == "reached":
            if body is not None and goal == "suspended":
                _await_no_pods(api, body, until, tell)
            return None if goal == "deleted" else body
        if judgement.outcome == "impossible":
            raise ClusterFailedError(f"{name} cannot become {goal} any more: {judgement.words}")
        if judgement.words != last:
            last = judgement.words
            tell(last)
    raise WaitTimeoutError(f"{name} did not become {goal} within {timeout:g} s: {last}")


def _end_of(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout


def _wait_for_pods(
    api: KubernetesApi, body: Object, until: float, tell: Callable[[str], None], missing: Callable[[list[Object]], str]
) -> str:
    """Wait until nothing is missing from the pods that are not kept for their logs; else return what is missing."""
    about, last = body["metadata"], ""
    labels = f"{naming.LABEL_CLUSTER}={about['name']},!{naming.LABEL_KEPT}"
    for pods in follow(api, Selection(PODS, about["namespace"], labels), until=until):
        if not (words := missing(pods)):
            return ""
        if words != last:
            last = words
            tell(last)
    return last


def wait_for_new_pods(
    api: KubernetesApi, body: Object, old: Mapping[TaskName, str], *, timeout: float | None, tell: Callable[[str], None]
) -> None:
    """Wait until each of some tasks has a new pod that is ready or has ended with exit code 0."""

    def missing(pods: list[Object]) -> str:
        works = {task_of(one) for one in pods if one["metadata"]["uid"] not in old.values() and _works(one)}
        left = sorted(task for task in old if task not in works)
        return f"{few(left)} not ready yet in a new pod" if left else ""

    if left := _wait_for_pods(api, body, _end_of(timeout), tell, missing):
        raise WaitTimeoutError(f"{body['metadata']['name']}: within {timeout:g} s, {left}")


def _works(pod: Object) -> bool:
    status = pod.get("status") or {}
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    return "deletionTimestamp" not in pod["metadata"] and (ready or status.get("phase") == "Succeeded")


def _await_no_pods(api: KubernetesApi, body: Object, until: float, tell: Callable[[str], None]) -> None:
    """Wait until the pods of a suspended TFCluster are deleted, because its status does not show that."""

    def left(pods: list[Object]) -> str:
        names = sorted(one["metadata"]["name"] for one in pods if controller_of(one) == body["metadata"]["uid"])
        return f"pods are not deleted yet: {few(names)}" if names else ""

    # Without permission to list pods, only the operator's status counts.
    with contextlib.suppress(RefusedError):
        if words := _wait_for_pods(api, body, until, tell, left):
            raise WaitTimeoutError(f"{body['metadata']['name']} is suspended, but {words}")
