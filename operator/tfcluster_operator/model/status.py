"""The status: what is true now, worked out from what exists, and never an input to a decision.

Counts tell the truth (a running pod is never "succeeded"), and the Ready condition names in words what is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tfcluster_operator.model import drift, naming, reasons, views
from tfcluster_operator.model.actions import Finding
from tfcluster_operator.model.observed import Observed, ObservedPod
from tfcluster_operator.model.spec import Job, Task, TFCluster
from tfcluster_resolver import contract

#: Which finding is told first when there are several.
_GRAVITY: Final = (
    reasons.INVALID_SPEC,
    reasons.VIEW_TOO_LARGE,
    reasons.NAME_TAKEN,
    reasons.REFUSED,
    reasons.WAITING_FOR_PREDECESSOR,
    reasons.REPLACING_FAILED_POD,
    reasons.TASKS_NOT_READY,
)
#: A list of tasks in a message stops after this many.
_NAMED_TASKS: Final = 3


@dataclass(frozen=True, slots=True)
class _Says:
    """What a condition says, before the time of its last change is known."""

    kind: str
    status: bool
    reason: str
    message: str


def status_of(
    cluster: TFCluster,
    observed: Observed,
    wanted: tuple[views.JobViews, ...],
    findings: Sequence[Finding],
    now: float,
) -> dict[str, Any]:
    """Work out the whole status.

    Args:
        cluster: the declaration, with the status that it had (for the times of the last changes).
        observed: what exists after the plan was carried out.
        wanted: the views that should be published.
        findings: what keeps the cluster from being ready.
        now: the time, in seconds since the epoch.

    Returns:
        The status object; writing it is needed only where it differs from the one that the cluster has.
    """
    pods = {job.name: tuple(_pods_of(cluster, job, observed)) for job in cluster.jobs}
    jobs = {job.name: _job_status(cluster, job, pods[job.name]) for job in cluster.jobs}
    desired = sum(status["desired"] for status in jobs.values())
    ready = sum(status["ready"] for status in jobs.values())
    finished = sum(status["succeeded"] for status in jobs.values())
    said = (
        _ready(cluster, pods, findings, ready=ready, finished=finished, desired=desired),
        _suspended(cluster),
        _published(cluster, observed, wanted, pods),
        _conflict(findings),
    )
    return {
        "observedGeneration": cluster.generation,
        "epoch": views.epoch_of(wanted),
        "ready": f"{ready}/{desired}",
        "gpus": _gpus(jobs),
        "jobs": jobs,
        "conditions": conditions(cluster.status, said, generation=cluster.generation, now=now),
    }


def invalid_status(
    status: Mapping[str, Any], *, generation: int, problems: Sequence[str], now: float
) -> dict[str, Any]:
    """Work out the status of a TFCluster whose spec cannot be read: what was reported stays, Ready says why."""
    said = (_Says("Ready", status=False, reason=reasons.INVALID_SPEC, message=_shorten(problems)),)
    return {
        **status,
        "observedGeneration": generation,
        "conditions": conditions(status, said, generation=generation, now=now),
    }


def conditions(
    before: Mapping[str, Any], said: Sequence[_Says], *, generation: int, now: float
) -> list[dict[str, Any]]:
    """Give every condition its lastTransitionTime, by Kubernetes' API conventions; others' conditions are kept."""
    old = {condition.get("type"): condition for condition in before.get("conditions") or ()}
    ours = []
    for says in said:
        status = "True" if says.status else "False"
        known = old.pop(says.kind, {})
        moved = known.get("lastTransitionTime") if known.get("status") == status else None
        ours.append(
            {
                "type": says.kind,
                "status": status,
                "reason": says.reason,
                "message": says.message,
                "observedGeneration": generation,
                "lastTransitionTime": moved or datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
    return ours + list(old.values())


def _pods_of(cluster: TFCluster, job: Job, observed: Observed) -> Iterator[tuple[Task, ObservedPod]]:
    """Give the pods of a job's declared tasks that are this cluster's and stay; a suspended cluster declares none."""
    for index in range(0 if cluster.suspend else job.replicas):
        pod = observed.pods.get(naming.pod_name(cluster.name, job.name, index))
        if pod is not None and pod.meta.owner_uid == cluster.uid and not pod.meta.terminating:
            yield Task(job, index), pod


def _job_status(cluster: TFCluster, job: Job, pods: Sequence[tuple[Task, ObservedPod]]) -> dict[str, Any]:
    held: dict[str, int] = {}
    limits = job.limits()
    for _, pod in pods:
        if pod.phase == "Running":
            for resource, count in {**limits, **(pod.devices or {})}.items():
                if resource in limits:
                    held[resource] = held.get(resource, 0) + count
    return {
        "desired": job.replicas,
        "created": len(pods),
        "ready": sum(pod.ready and pod.phase == "Running" for _, pod in pods),
        "succeeded": sum(pod.phase == "Succeeded" for _, pod in pods),
        "failed": sum(pod.phase == "Failed" for _, pod in pods),
        "accelerators": held,
        "selector": naming.job_selector(cluster.name, job.name),
    }


def _gpus(jobs: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(
        count
        for job in jobs.values()
        for resource, count in job["accelerators"].items()
        if contract.device_type(resource) == "GPU"
    )


def _ready(
    cluster: TFCluster,
    pods: Mapping[str, Sequence[tuple[Task, ObservedPod]]],
    findings: Sequence[Finding],
    *,
    ready: int,
    finished: int,
    desired: int,
) -> _Says:
    if cluster.suspend and not findings:
        return _Says("Ready", status=False, reason=reasons.SUSPENDED, message="suspended by spec.suspend: no pods")
    for reason in _GRAVITY:
        if told := [finding.message for finding in findings if finding.reason == reason]:
            return _Says("Ready", status=False, reason=reason, message=_shorten(told))
    if ready + finished < desired:
        waiting = [
            f"{task}: {pod.trouble or 'not ready yet'}"
            for of_job in pods.values()
            for task, pod in sorted(of_job, key=lambda of: not of[1].trouble)
            if not pod.ready and pod.phase != "Succeeded"
        ]
        message = f"{ready} of {desired} tasks are ready"
        return _Says(
            "Ready", status=False, reason=reasons.TASKS_NOT_READY, message="; ".join([message, *_few(waiting)])
        )
    also = f", {finished} finished" if finished else ""
    return _Says("Ready", status=True, reason=reasons.ALL_TASKS_READY, message=f"{ready} of {desired} ready{also}")


def _suspended(cluster: TFCluster) -> _Says:
    if cluster.suspend:
        return _Says("Suspended", status=True, reason=reasons.SUSPENDED, message="spec.suspend is true")
    return _Says("Suspended", status=False, reason=reasons.NOT_SUSPENDED, message="spec.suspend is false")


def _published(
    cluster: TFCluster,
    observed: Observed,
    wanted: tuple[views.JobViews, ...],
    pods: Mapping[str, Sequence[tuple[Task, ObservedPod]]],
) -> _Says:
    stale = []
    for job_views in wanted:
        existing = observed.config_maps.get(job_views.name)
        if (
            existing is None
            or existing.meta.owner_uid != cluster.uid
            or existing.meta.terminating
            or drift.config_map_change(cluster, job_views, existing)
        ):
            stale.append(f"ConfigMap {job_views.name}")
        stale += [
            str(task)
            for task, pod in pods[job_views.job.name]
            if pod.listening and pod.told != job_views.digest_for(task.index)
        ]
    if stale:
        return _Says(
            "MembershipPublished",
            status=False,
            reason=reasons.PUBLISHING,
            message=f"{len(stale)} not told yet: {', '.join(_few(stale))}",
        )
    epoch = views.epoch_of(wanted)
    return _Says(
        "MembershipPublished",
        status=True,
        reason=reasons.PUBLISHED,
        message=f"every running pod was told of its view; newest epoch {epoch}",
    )


def _conflict(findings: Sequence[Finding]) -> _Says:
    if taken := [finding.message for finding in findings if finding.reason == reasons.NAME_TAKEN]:
        return _Says("NameConflict", status=True, reason=reasons.NAME_TAKEN, message=_shorten(taken))
    return _Says("NameConflict", status=False, reason=reasons.NO_CONFLICT, message="no name is taken by others")


def _shorten(messages: Sequence[str]) -> str:
    return "; ".join(_few(messages))


def _few(items: Sequence[str]) -> list[str]:
    more = len(items) - _NAMED_TASKS
    return [*items[:_NAMED_TASKS], *([f"and {more} more"] if more > 0 else [])]
