"""When the time is up: activeDeadlineSeconds of a running cluster, ttlSecondsAfterFinished of a finished one."""

from __future__ import annotations

from tfcluster_operator.model import reasons
from tfcluster_operator.model.ledger import FAILED, Ledger, Verdict
from tfcluster_operator.model.spec import TFCluster


def judge_deadline(cluster: TFCluster, ledger: Ledger, now: float) -> Verdict | None:
    """Decide whether the cluster has run too long."""
    limit = cluster.active_deadline
    if limit is None or not ledger.started_at or now < ledger.started_at + limit:
        return None
    return Verdict(FAILED, reasons.DEADLINE_EXCEEDED, f"not finished within activeDeadlineSeconds, {limit} s")


def seconds_left(cluster: TFCluster, ledger: Ledger, now: float) -> float | None:
    """Give the seconds until the deadline of a running cluster or the end of a finished one; None without a limit."""
    if ledger.verdict is None:
        limit, since = cluster.active_deadline, ledger.started_at
    else:
        limit, since = cluster.ttl_after_finished, ledger.finished_at
    return None if limit is None or not since else since + limit - now
