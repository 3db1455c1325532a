"""What a change to a TFCluster will do, decided from what was read of it; nothing here asks anybody.

What happens to tasks follows docs/life.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster.errors import ManifestError, NotRunningError
from tfcluster.task_names import spell
from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED
from tfcluster_operator.declaration.parse import is_ours
from tfcluster_operator.report import conditions

_AGAIN: Final = "To run it again: tfcluster delete {name}, then tfcluster apply -f FILE."
_MOST_NAMED: Final = 6


@dataclass(frozen=True, slots=True)
class Change:
    """What will be done to a TFCluster.

    Attributes:
        patch: the merge patch; empty where all is as wanted already.
        words: what will happen, one sentence each.
        first: a merge patch that comes before it.
    """

    patch: Mapping[str, Any]
    words: tuple[str, ...]
    first: Mapping[str, Any] = field(default_factory=dict)


def scaling(body: Mapping[str, Any], job: str, replicas: int, autoscalers: Iterable[str] = ()) -> Change:
    """Decide a change of the number of a job's tasks.

    Raises:
        ManifestError: there is no such job, or it may not have so many tasks.
        NotRunningError: the cluster has finished.
    """
    name, spec = body["metadata"]["name"], body["spec"]
    jobs: Mapping[str, Any] = spec["jobs"]
    if job not in jobs:
        raise ManifestError(f"{name} has no job {job}", hint=f"Its jobs are {', '.join(sorted(jobs))}: --job NAME.")
    if replicas < 0:
        raise ManifestError(f"{job}: {replicas} is no number of tasks: give 0 or more")
    check_alive(body, "no task starts again, whatever the number")
    now, most = int(jobs[job].get("replicas", 1)), jobs[job].get("maxReplicas")
    if most is not None and replicas > most:
        raise ManifestError(
            f"{job}: {replicas} tasks are more than spec.jobs.{job}.maxReplicas allows, which is {most}",
            hint=f"Scale to {most} at the most, or raise maxReplicas in the manifest. Raised maxReplicas reach the "
            "device filters of a program that runs when it is started again.",
        )
    words = list(about_manager(body))
    words += [
        f"The HorizontalPodAutoscaler {one} scales this job, too, and may change the number again."
        for one in autoscalers
    ]
    if replicas == now:
        return Change({}, (f"{job} has {_tasks(now)} already.", *words))
    first = f"{job}: from {now} to {_tasks(replicas)}."
    if spec.get("suspend"):
        moves = "It is suspended: the number counts when it is resumed."
    elif replicas > now:
        moves = f"New: {_named(job, range(now, replicas))}; no pod that runs is replaced."
    else:
        drain = int(jobs[job].get("drainTimeoutSeconds", 0))
        after = f", {drain} s (drainTimeoutSeconds) after the others have the smaller view" if drain else ""
        moves = f"To go: {_named(job, reversed(range(replicas, now)))}{after}; the others stay."
    return Change({"spec": {"jobs": {job: {"replicas": replicas}}}}, (first, moves, *words))


def suspension(body: Mapping[str, Any]) -> Change:
    """Decide a suspension; raises NotRunningError."""
    check_alive(body, "there is nothing to suspend")
    if body["spec"].get("suspend"):
        return Change({}, (f"{body['metadata']['name']} is suspended already.", *about_manager(body)))
    pods = sum(int(job.get("created") or 0) for job in ((body.get("status") or {}).get("jobs") or {}).values())
    words = (
        f"To be deleted: {count(pods, 'pod')}; programs get SIGTERM." if pods else "It has no pods yet, and gets none.",
        "To be kept: the TFCluster, its Service and views, volumes, and failed pods that are kept for their logs.",
        "A resumed cluster starts from the beginning: a program goes on where it was only by its own checkpoints.",
    )
    return Change({"spec": {"suspend": True}}, (*words, *about_manager(body)))


def resumption(body: Mapping[str, Any]) -> Change:
    """Decide a resumption; raises NotRunningError."""
    check_alive(body, "no task starts again")
    first: Mapping[str, Any] = {}
    if not body["spec"].get("suspend"):
        if conditions.by_type(body.get("status") or {}).get("Suspended", {}).get("reason") != reasons.GANG_TIMEOUT:
            return Change({}, (f"{body['metadata']['name']} is not suspended.", *about_manager(body)))
        # NB: the operator gave up by itself, and only an edit makes it try again.
        first = {"spec": {"suspend": True}}
    total = sum(int(job.get("replicas", 1)) for job in body["spec"]["jobs"].values())
    started = f"To start from the beginning: {count(total, 'task')}, complete ones too."
    words = (started, "Restarts and the deadline count from zero.")
    return Change({"spec": {"suspend": False}}, (*words, *about_manager(body)), first)


def deletion(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what goes with a TFCluster, and what stays of what its pods use."""
    jobs: Mapping[str, Any] = body["spec"]["jobs"]
    total = sum(int(job.get("replicas", 1)) for job in jobs.values())
    gone = (
        f"To be deleted: TFCluster {body['metadata']['name']}, the pods of its {count(total, 'task')} with their logs, "
    )
    kept = sorted({used for job in jobs.values() for used in _used_by(job.get("template") or {})})
    stays = f"To be kept: {', '.join(kept) if kept else 'whatever is not its own, such as volumes and images'}."
    return (f"{gone}its Service and its views.", stays)


def _used_by(template: Mapping[str, Any]) -> Iterator[str]:
    """Name the objects of others that pods mount; volumes of kind ``ephemeral`` go with their pods."""
    for volume in (template.get("spec") or {}).get("volumes") or ():
        for kind, word, key in (
            ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
        ):
            if found := (volume.get(kind) or {}).get(key):
                yield f"{word} {found}"


def finished(body: Mapping[str, Any]) -> str:
    """Give "has succeeded" or "has failed", and "" where the cluster has not finished."""
    found = conditions.by_type(body.get("status") or {})
    for kind in (FAILED, SUCCEEDED):
        if (found.get(kind) or {}).get("status") == "True":
            return f"has {kind.lower()}"
    return ""


def check_alive(body: Mapping[str, Any], so: str) -> None:
    """Refuse what needs a TFCluster that goes on.

    Raises:
        NotRunningError: it has finished, or is being deleted.
    """
    name = body["metadata"]["name"]
    if "deletionTimestamp" in body["metadata"]:
        raise NotRunningError(
            f"{name} is being deleted: {so}", hint=f"Wait for it: tfcluster wait {name} --for deleted."
        )
    if verdict := finished(body):
        raise NotRunningError(f"{name} {verdict}: {so}", hint=_AGAIN.format(name=name))


def about_manager(body: Mapping[str, Any]) -> Iterator[str]:
    """Say who acts on it, where that is not our operator."""
    if not is_ours(body):
        yield f"spec.managedBy leaves it to {body['spec']['managedBy']}: what follows is up to that controller."


def _named(job: str, indices: Iterable[int]) -> str:
    """Name tasks; of many the first and the last."""
    found = [spell(job, index) for index in indices]
    if len(found) > _MOST_NAMED:
        return f"{found[0]} … {found[-1]} ({len(found)} tasks)"
    return " and ".join([*([", ".join(found[:-1])] if found[1:] else []), *found[-1:]])


def _tasks(number: int) -> str:
    return count(number, "task")


def count(number: int, what: str) -> str:
    """Spell a number of things."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
