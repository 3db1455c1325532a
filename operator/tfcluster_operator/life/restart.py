"""How a failed task is restarted: alone or with its scope, and the back-off before that.

All times are the operator's: when it counted a failure, not when the node reported it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from tfcluster_operator.declaration.ledger import Failing, JobRecord, LastRestart, Ledger
from tfcluster_operator.declaration.spec import Job, Task, TFCluster
from tfcluster_operator.life.ending import name_of, words_for
from tfcluster_operator.objects.pod import Pod

#: Seconds of the first back-off; it doubles with each failure in a row, up to the longest.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
#: A task that was restarted this long (seconds) ago and has not failed since starts with a failure count of 0.
FORGIVEN_AFTER: Final = 600.0
#: A back-off is longer than its rule by at most this share, so that a thousand tasks do not restart simultaneously.
_JITTER: Final = 0.25


def scope_of(cluster: TFCluster, job: Job) -> tuple[Job, ...]:
    """Return the jobs whose pods are all replaced when a task of this job fails; empty if only the task is."""
    if job.restart_scope == "Cluster":
        return cluster.jobs
    return (job,) if job.restart_scope == "Job" else ()


def count_restart(cluster: TFCluster, task: Task, pod: Pod, ledger: Ledger, now: float) -> Ledger:
    """Enter one failure that leads to a restart: of the task, or of its whole scope as one incident."""
    last = entry_of(task, pod, now)
    counted = replace(ledger, restarts=ledger.restarts + 1, last_restart=last, failures=(*ledger.failures, last))
    record = counted.of(task.job.name)
    counted = counted.with_job(task.job.name, restarts=record.restarts + 1)
    scope = scope_of(cluster, task.job)
    if not scope:
        return counted.with_job(task.job.name, **_failed_alone(record, task.index, pod, now))
    before = [ledger.of(job.name) for job in scope]
    in_row = max(0 if is_forgiven(one.restart_at, now) else one.in_row for one in before)
    return _started_over(counted, scope, in_row=in_row + 1, at=now + pause(in_row, seed=pod.meta.uid))


def entry_of(task: Task, pod: Pod, now: float) -> LastRestart:
    """Build the ledger's record of one failure."""
    return LastRestart(
        task=str(task),
        reason=name_of(pod.exit, pod.reason),
        exit_code=pod.exit.code if pod.exit is not None else None,
        message=words_for(pod),
        time=now,
        pod=pod.meta.name if task.job.history_limit else "",
    )


def _failed_alone(record: JobRecord, index: int, pod: Pod, now: float) -> dict[str, Any]:
    known = record.failing.get(index)
    in_row = known.in_row if known is not None and not is_forgiven(known.retry_at, now) else 0
    return {
        "counted": record.counted | {pod.meta.uid},
        "started": record.started - {index},
        "failing": {**record.failing, index: Failing(in_row + 1, now + pause(in_row, seed=pod.meta.uid))},
    }


def _started_over(ledger: Ledger, scope: Iterable[Job], *, in_row: int, at: float) -> Ledger:
    number = ledger.next_incarnation()
    for job in scope:
        ledger = ledger.with_job(
            job.name,
            incarnation=number,
            in_row=in_row,
            restart_at=at,
            begun=False,
            completed=frozenset(),
            started=frozenset(),
            counted=frozenset(),
            failing={},
            lost={},
        )
    return ledger


def is_forgiven(tried_at: float, now: float) -> bool:
    """Return whether the last restart, by the operator's clock, is so long ago that earlier failures are forgiven."""
    return now - tried_at >= FORGIVEN_AFTER


def believed(retry_at: float, now: float) -> float:
    """Return the time of the next try; now if it is further ahead than any back-off, because a clock was wrong."""
    return retry_at if retry_at <= now + LONGEST_PAUSE * (1 + _JITTER) else now


def pause(failures: int, *, seed: str) -> float:
    """Return the back-off after this number of failures in a row; the same seed gives the same jitter."""
    drawn = hashlib.sha256(seed.encode()).digest()[0] / 255
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 30)) * (1 + _JITTER * drawn)


def pause_before_replacing(pod: Pod) -> tuple[float, int]:
    """Return the seconds from a pod's end, other than a failure, to its replacement, and the replacement's attempt."""
    # The first time is 0 s; a pod that is rejected again and again, as by a full node, waits longer each time.
    attempt = 0 if pod.noted.ended_at - pod.noted.since >= FORGIVEN_AFTER else pod.attempt
    return (pause(attempt - 1, seed=pod.meta.uid) if attempt else 0.0), attempt + 1
