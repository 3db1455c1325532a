"""The status: what is true now, worked out from what exists, and never an input to a decision.

Counts tell the truth (a running pod is never "succeeded"), and the Ready condition names in words what is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfcluster_operator.model import conditions, naming, reasons, views
from tfcluster_operator.model.actions import Finding
from tfcluster_operator.model.ledger import JobRecord, Ledger, cluster_fields, job_fields
from tfcluster_operator.model.observed import Observed, ObservedPod
from tfcluster_operator.model.policies.ending import Ending, ending_of
from tfcluster_operator.model.spec import Job, Task, TFCluster
from tfcluster_resolver import contract


def status_of(  # noqa: PLR0917 - what is declared, exists, is known, is wanted and was found, and the time
    cluster: TFCluster,
    observed: Observed,
    ledger: Ledger,
    wanted: tuple[views.JobViews, ...],
    findings: Sequence[Finding],
    now: float,
    *,
    changed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Work out the whole status.

    Args:
        cluster: the declaration, with the status that it had (for the times of the last changes).
        observed: what exists after the plan was carried out.
        ledger: what is known of its life.
        wanted: the views that should be published.
        findings: what keeps the cluster from being ready.
        now: the time, in seconds since the epoch.
        changed: the first field in which the template of a job differs from its outdated pods, by job.

    Returns:
        The status object; writing it is needed only where it differs from the one that the cluster has.
    """
    pods = {job.name: tuple(_pods_of(cluster, job, observed, ledger)) for job in cluster.jobs}
    jobs = {job.name: _job_status(cluster, job, pods[job.name], ledger.of(job.name)) for job in cluster.jobs}
    gating = [jobs[job.name] for job in conditions.gating_jobs(cluster)]
    counts = conditions.Counts(*(sum(status[name] for status in gating) for name in ("desired", "ready", "succeeded")))
    said = (
        conditions.ready(cluster, pods, ledger, findings, counts),
        conditions.suspended(cluster, ledger),
        *conditions.ended(cluster, ledger),
        conditions.published(cluster, observed, ledger, wanted, pods),
        conditions.up_to_date(cluster, observed, ledger, changed or {}),
        conditions.conflict(findings),
    )
    return {
        "observedGeneration": cluster.generation,
        "epoch": _epoch(cluster, wanted),
        "ready": f"{counts.ready}/{counts.desired}",
        "gpus": _gpus(jobs),
        **cluster_fields(ledger),
        "jobs": jobs,
        "conditions": conditions.dated(cluster.status, said, generation=cluster.generation, now=now),
    }


def _epoch(cluster: TFCluster, wanted: tuple[views.JobViews, ...]) -> int:
    """Give the newest epoch there ever was: the job that had it may be gone."""
    known = cluster.status.get("epoch")
    before = known if isinstance(known, int) and known <= cluster.generation else 0
    return max(before, views.epoch_of(wanted))


def invalid_status(
    status: Mapping[str, Any], *, generation: int, problems: Sequence[str], now: float
) -> dict[str, Any]:
    """Work out the status of a TFCluster whose spec cannot be read: what was reported stays, Ready says why."""
    said = (conditions.Says("Ready", status=False, reason=reasons.INVALID_SPEC, message=conditions.shorten(problems)),)
    return {
        **status,
        "observedGeneration": generation,
        "conditions": conditions.dated(status, said, generation=generation, now=now),
    }


def _pods_of(cluster: TFCluster, job: Job, observed: Observed, ledger: Ledger) -> Iterator[tuple[Task, ObservedPod]]:
    """Give the pods of a job's declared tasks that are this cluster's and stay; a suspended cluster declares none."""
    if cluster.suspend and ledger.verdict is None:
        return
    for index in range(job.replicas):
        pod = observed.pods.get(naming.pod_name(cluster.name, job.name, index))
        if pod is not None and pod.meta.owner_uid == cluster.uid and not pod.meta.terminating:
            yield Task(job, index), pod


def _job_status(
    cluster: TFCluster, job: Job, pods: Sequence[tuple[Task, ObservedPod]], record: JobRecord
) -> dict[str, Any]:
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
        "ready": sum(pod.serving for _, pod in pods),
        "succeeded": len(record.completed),
        "failed": sum(ending_of(pod) is Ending.FAILED for _, pod in pods),
        **job_fields(record),
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
