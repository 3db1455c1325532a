"""The part of a cluster in the metrics, as numbers with few labels.

A metric has a time series for each value of each label, so names chosen by users are never labels: jobs are counted by
their role, failures by their cause, and every set of values here is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED, LastRestart, Ledger
from tfcluster_operator.life.ending import OUT_OF_TIME
from tfcluster_operator.life.roster import Roster, Stage
from tfcluster_operator.report import status
from tfcluster_operator.report.conditions import GRAVITY, WAITS, by_type

OTHER: Final = "other"
#: The job names that have a meaning in TensorFlow, and one for all others.
ROLES: Final = ("chief", "master", "worker", "ps", "evaluator", OTHER)

IDLE: Final = "idle"
_STATES: Final = {
    Stage.SERVING: "ready",
    Stage.STARTING: "starting",
    Stage.ENDED: "ended",
    Stage.COMPLETED: "completed",
    Stage.TERMINATING: "terminating",
    Stage.MISSING: "missing",
    Stage.FOREIGN: "blocked",
    Stage.PREDECESSOR: "blocked",
}
#: The states of a task; ``idle`` does not have a pod and does not need one.
STATES: Final = (*dict.fromkeys(_STATES.values()), IDLE)
_WITHOUT_A_POD: Final = (Stage.MISSING, Stage.FOREIGN, Stage.PREDECESSOR)

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


def tasks_of(roster: Roster, ledger: Ledger) -> dict[tuple[str, str], int]:
    """Count the declared tasks of a cluster by role and state."""
    idle = roster.cluster.suspend or ledger.verdict is not None
    counted: dict[tuple[str, str], int] = {}
    for job in roster.cluster.jobs:
        role = role_of(job.name)
        for stage, count in Counter([place.stage for place in roster.of(job)]).items():
            key = role, IDLE if idle and stage in _WITHOUT_A_POD else _STATES[stage]
            counted[key] = counted.get(key, 0) + count
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
    reason, created = str(ready.get("reason")), _seconds(metadata.get("creationTimestamp"))
    if reason in WAITS:
        return Waiting(reason, max(created, _seconds(status.waiting_since(told))))
    # For a cluster that was suspended or has waited for days, count only from the end of that.
    since = max(
        placed_at,
        created,
        _seconds(ready.get("lastTransitionTime")),
        _seconds(suspended.get("lastTransitionTime")),
    )
    return Waiting(reason if reason in OBSTACLES else NOT_REPORTED, since)


def undelivered_since(body: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return since when a changed view has not been delivered, in seconds since the Unix epoch; None if all are."""
    published = conditions.get("MembershipPublished", {})
    if published.get("status") != "False" or body["metadata"].get("deletionTimestamp"):
        return None
    return _seconds(published.get("lastTransitionTime"))


def _seconds(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
    except (OverflowError, ValueError):
        return 0.0
