"""The figures of all clusters at the time of a scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tfcluster_operator.declaration.parse import is_ours
from tfcluster_operator.engine.journal import Account
from tfcluster_operator.kube.clusters import Key, Parents
from tfcluster_operator.kube.metrics import Figures
from tfcluster_operator.report import tally
from tfcluster_operator.report.conditions import CONDITION_TYPES, WAITS, by_type


def figures_of(
    parents: Parents,
    report_of: Callable[[Key], tuple[Mapping[str, Any], Account]],
    overdue: tuple[int, float],
    now: float,
) -> Figures:
    """Compute the gauges: a few look-ups per cluster, and none per pod."""
    conditions: Counter[tuple[str, ...]] = Counter()
    not_ready: Counter[tuple[str, ...]] = Counter()
    waiting: Counter[tuple[str, ...]] = Counter()
    waiting_since: dict[tuple[str, ...], float] = {}
    tasks: Counter[tuple[str, ...]] = Counter()
    not_ready_since = undelivered_since = now
    for key in parents.known():
        body = parents.get(key)
        if body is None or not is_ours(body):
            continue
        status, account = report_of(key)
        told = by_type(status)
        for kind in CONDITION_TYPES:
            conditions[kind, told.get(kind, {}).get("status", "Unknown")] += 1
        match tally.waiting(body, status, account.placed_at):
            case tally.Waiting(reason, since) if reason in WAITS:
                waiting[reason,] += 1
                waiting_since[reason,] = min(waiting_since.get((reason,), now), since)
            case tally.Waiting(reason, since):
                not_ready[reason,] += 1
                not_ready_since = min(not_ready_since, since)
        if (late_since := tally.undelivered_since(body, told)) is not None:
            undelivered_since = min(undelivered_since, late_since)
        for of, count in account.tasks.items():
            tasks[of] += count
    return Figures(
        conditions=conditions,
        not_ready=not_ready,
        # Times from the API server or an earlier operator can be in the future; the minima here start at now.
        not_ready_oldest=now - not_ready_since,
        waiting=waiting,
        waiting_oldest={reason: now - since for reason, since in waiting_since.items()},
        tasks=tasks,
        undelivered_oldest=now - undelivered_since,
        queue_depth=overdue[0],
        queue_oldest=overdue[1],
    )
