"""The status as a report, computed from what exists.

Decisions do not read this report; they read the ledger, which the status stores because no object has its facts.
Counts are exact (a running pod is never "succeeded"), and the message of Ready names what the cluster waits for.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import (
    FAILED,
    INTERNAL,
    SUCCEEDED,
    LastRestart,
    Ledger,
    cluster_fields,
    internal_fields,
    job_fields,
    seconds_of,
    timestamp,
)
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.life import views
from tfcluster_operator.life.roster import Roster
from tfcluster_operator.objects.pod import OUT_OF_TIME, Ending
from tfcluster_operator.plan.actions import Finding
from tfcluster_operator.report import conditions
from tfcluster_operator.report.conditions import GRAVITY, WAITS, by_type
from tfcluster_resolver import contract

_WAITING_SINCE: Final = "waitingSince"
#: With these findings it is unknown whether a cluster still waits.
_UNKNOWN: Final = frozenset({reasons.QUEUE_UNAVAILABLE, reasons.GANG_UNAVAILABLE})


def status_of(
    roster: Roster,
    ledger: Ledger,
    wanted: tuple[views.JobViews, ...],
    findings: Sequence[Finding],
    now: float,
    *,
    aside: Sequence[Finding] = (),
) -> dict[str, Any]:
    """Compute the whole status; ``findings`` prevent the cluster from being ready, ``aside`` are other problems."""
    cluster = roster.cluster
    jobs = {job.name: _job_status(roster, job, ledger) for job in cluster.jobs}
    gating = [jobs[job.name] for job in conditions.gating_jobs(cluster)]
    counts = conditions.Counts(*(sum(status[name] for status in gating) for name in ("replicas", "ready", "succeeded")))
    published = conditions.published(roster, ledger, wanted)
    ready = conditions.ready(roster, ledger, findings, counts)
    untold = [*aside, *(one for one in findings if one.reason != ready.reason)]
    said = (
        ready,
        conditions.suspended(roster, ledger),
        *conditions.ended(cluster, ledger),
        conditions.stalled(cluster, ledger),
        published,
        conditions.up_to_date(roster, ledger, untold),
        conditions.conflict((*findings, *aside)),
    )
    return {
        "observedGeneration": cluster.generation,
        "epoch": _epoch(cluster, wanted),
        "tasks": counts.desired,
        "readyTasks": counts.ready,
        "accelerators": _accelerators(jobs),
        # Without isolation this is left out, so that an upgrade does not write the status.
        **_isolation(roster),
        **cluster_fields(ledger),
        **_waiting(cluster, ledger, (*findings, *aside), now),
        "jobs": jobs,
        INTERNAL: internal_fields(ledger),
        "conditions": conditions.dated(cluster.status, said, generation=cluster.generation, now=now),
    }


def waiting_since(status: Mapping[str, Any]) -> str | None:
    """Return since when a cluster has waited for quota or for the nodes of a gang; None if it does not."""
    since = status.get(_WAITING_SINCE)
    return since if isinstance(since, str) else None


def is_starting(status: Mapping[str, Any]) -> bool:
    """Return whether a status only reports that tasks are not ready yet, which is not urgent."""
    reason: str = conditions.by_type(status)["Ready"]["reason"]
    return reason == reasons.TASKS_NOT_READY


def was_starting(known: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether a cluster was ready or starting at its last report, and still has the same generation."""
    before = conditions.by_type(known).get("Ready", {})
    on_its_way = before.get("status") == "True" or before.get("reason") == reasons.TASKS_NOT_READY
    return on_its_way and known.get("observedGeneration") == status["observedGeneration"]


def _waiting(cluster: TFCluster, ledger: Ledger, findings: Sequence[Finding], now: float) -> dict[str, str]:
    since, found = waiting_since(cluster.status), {finding.reason for finding in findings}
    # A more severe reason hides a wait from Ready but does not end it; neither does an unavailable API.
    waits = found & {*conditions.WAITS} or (since and found & _UNKNOWN)
    return {_WAITING_SINCE: since or timestamp(now)} if waits and ledger.verdict is None else {}


def _isolation(roster: Roster) -> dict[str, str]:
    """Return the mode in force: the previous one, until each policy of the wanted one exists."""
    mode = roster.cluster.isolation.mode
    if roster.unsettled:
        mode = roster.cluster.status.get("isolation", "None")
    return {} if mode == "None" else {"isolation": mode}


def _epoch(cluster: TFCluster, wanted: tuple[views.JobViews, ...]) -> int:
    """Return the newest epoch so far: the job that had it might be deleted."""
    known = cluster.status.get("epoch")
    before = known if isinstance(known, int) and known <= cluster.edition else 0
    return max(before, views.epoch_of(wanted))


def unreconciled_status(cluster: TFCluster, reason: str, message: str, now: float) -> dict[str, Any]:
    """Compute the status of a TFCluster that is not reconciled: Ready has the reason, the rest stays as it was."""
    said = [conditions.Says("Ready", False, reason, message)]
    if reason == reasons.INVALID_SPEC:
        said.append(conditions.Says("Stalled", True, reason, message))
    return {
        **{field: value for field, value in cluster.status.items() if field != _WAITING_SINCE},
        "observedGeneration": cluster.generation,
        "conditions": conditions.dated(cluster.status, said, generation=cluster.generation, now=now),
    }


def _job_status(roster: Roster, job: Job, ledger: Ledger) -> dict[str, Any]:
    record, places = ledger.of(job.name), conditions.shown(roster, job, ledger)
    held: dict[str, int] = {}
    limits = job.limits
    created = ready = failed = 0
    for place in places:
        pod = place.pod if place.settled else place.staying
        if pod is None:
            continue
        created += 1
        ready += place.serving or pod.serving
        failed += place.ending is Ending.FAILED
        if limits and pod.phase == "Running":
            for resource, count in {**limits, **(pod.devices or {})}.items():
                if resource in limits:
                    held[resource] = held.get(resource, 0) + count
    return {
        # Tasks without quota are declared all the same.
        "replicas": next(one.replicas for one in roster.declared.jobs if one.name == job.name),
        "created": created,
        "ready": ready,
        "succeeded": len(record.completed),
        "failed": failed,
        **job_fields(record),
        "accelerators": held,
        "selector": naming.job_selector(roster.cluster.name, job.name),
    }


def _accelerators(jobs: Mapping[str, Mapping[str, Any]]) -> int:
    """Count the healthy accelerators that the cluster's pods hold."""
    held = [of for job in jobs.values() for of in job["accelerators"].items()]
    return sum(count for resource, count in held if contract.device_type(resource) is not None)


# The part of a cluster in the metrics, as numbers with few labels.  A metric has a time series for each value of each
# label, so names chosen by users are never labels: jobs are counted by their role, failures by their cause, and every
# set of values here is closed.

OTHER: Final = "other"
#: The job names that have a meaning in TensorFlow, and one for all others.
ROLES: Final = ("chief", "master", "worker", "ps", "evaluator", OTHER)

#: The numbers of a job in its status, by the name of the state in the metrics.
STATES: Final = {
    "replicas": "declared",
    "created": "created",
    "ready": "ready",
    "succeeded": "succeeded",
    "failed": "failed",
}

#: Why a task failed.
CAUSES: Final = ("OOMKilled", "KilledBySignal", "ExitCode", "Other")

#: If no condition reports a reason yet.
NOT_REPORTED: Final = "NotReported"
#: Why a cluster that should be ready is not, though it has its quota and its nodes.
OBSTACLES: Final = (*(reason for reason in GRAVITY if reason not in WAITS), NOT_REPORTED)


class Waiting(NamedTuple):
    """Why a cluster that should be ready is not, and since when, in seconds since the Unix epoch."""

    reason: str
    since: float


def role_of(job: str) -> str:
    """Return the role of a job name."""
    return job if job in ROLES else OTHER


def tasks_of(status: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Count the tasks of a cluster by role and state."""
    counted: dict[tuple[str, str], int] = {}
    for name, job in (status.get("jobs") or {}).items():
        for field, state in STATES.items():
            key = role_of(name), state
            counted[key] = counted.get(key, 0) + job.get(field, 0)
    return counted


def cause_of(failure: LastRestart) -> str:
    """Return the cause of a failure, one of :data:`CAUSES`."""
    if failure.reason in CAUSES[:2]:
        return failure.reason
    return "Other" if failure.exit_code is None or failure.reason in OUT_OF_TIME else "ExitCode"


def waiting(body: Mapping[str, Any], told: Mapping[str, Any], placed_at: float = 0.0) -> Waiting | None:
    """Return why a cluster that should be ready is not; suspended, finished and deleting ones should not be."""
    metadata, conditions = body["metadata"], by_type(told)
    if metadata.get("deletionTimestamp") or (body.get("spec") or {}).get("suspend") is True:
        return None
    if any(conditions.get(kind, {}).get("status") == "True" for kind in (SUCCEEDED, FAILED)):
        return None
    ready, suspended = conditions.get("Ready", {}), conditions.get("Suspended", {})
    # A cluster that is still reported as suspended was resumed a moment ago, and the report is outdated.
    if suspended.get("status") == "True" and suspended.get("reason") != reasons.WAITING_FOR_QUOTA:
        return None
    if ready.get("status") == "True":
        return None
    reason, created = str(ready.get("reason")), seconds_of(metadata.get("creationTimestamp"))
    if reason in WAITS:
        return Waiting(reason, max(created, seconds_of(waiting_since(told))))
    # For a cluster that was suspended or has waited for days, count only from the end of that.
    since = max(
        placed_at,
        created,
        seconds_of(ready.get("lastTransitionTime")),
        seconds_of(suspended.get("lastTransitionTime")),
    )
    return Waiting(reason if reason in OBSTACLES else NOT_REPORTED, since)
