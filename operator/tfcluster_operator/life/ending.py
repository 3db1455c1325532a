"""How a pod ended (its program succeeded or failed, or the pod was deleted), and how a failed task is restarted.

All times are the operator's: when it counted a failure, not when the node reported it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED, Failing, JobRecord, LastRestart, Ledger, Verdict
from tfcluster_operator.declaration.spec import Job, Task, TFCluster
from tfcluster_operator.objects.pod import Exit, Pod

#: An exit code above this encodes the signal that killed the program, as in shells and container runtimes.
SIGNALLED: Final = 128
LAST_SIGNALLED: Final = SIGNALLED + 64
_KILLED: Final = SIGNALLED + 9


#: The reason that Kubernetes sets on a pod that ran longer than its template's activeDeadlineSeconds.
OUT_OF_TIME: Final = ("DeadlineExceeded",)


class Ending(Enum):
    """How a pod ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"


def ending_of(pod: Pod) -> Ending | None:
    """Classify the end of a pod; None while its task runs, and for an end after the request to delete the pod."""
    # The exit code after SIGTERM proves nothing.  Nor do times: the end has the node's clock, the request the API
    # server's; so an earlier end counts if the operator saw it then, or the pod's own status proves it.
    if not pod.ended:
        return None
    if pod.meta.terminating and not pod.noted.ended_first:
        return None
    if pod.disrupted or pod.surplus_since:
        return Ending.DISRUPTED
    good = pod.exit.code == 0 if pod.exit is not None else pod.phase == "Succeeded"
    if pod.phase == "Failed" and pod.reason in OUT_OF_TIME:
        good = False  # the kubelet ended it: the exit code after SIGTERM proves nothing
    return Ending.SUCCEEDED if good else Ending.FAILED


def name_of(end: Exit | None, pod_reason: str = "") -> str:
    """Return the name of a failure in one CamelCase word: OOMKilled, KilledBySignal, or the reason of Kubernetes."""
    if end is None or pod_reason in OUT_OF_TIME:
        return pod_reason or "Failed"
    if end.reason == "OOMKilled":
        return end.reason
    if SIGNALLED < end.code <= LAST_SIGNALLED:
        return "KilledBySignal"
    return end.reason if end.reason not in {"", "Completed"} else "Error"


def words_for(pod: Pod) -> str:
    """Return a message about how a pod failed: the name, the exit code or signal, and its last line of output."""
    end = pod.exit
    if end is None:
        return pod.reason or "no exit code is known"
    name = name_of(end, pod.reason)
    if name == "KilledBySignal":
        words = f"killed by signal {end.code - SIGNALLED} (exit code {end.code})"
    elif name == "OOMKilled":
        words = f"OOMKilled: it used more memory than its limit (exit code {end.code})"
    else:
        words = f"exit code {end.code}" + (f", {name}" if name not in {"Error", "Completed"} else "")
    # A killed program cannot write why it ended: its last output is about something else.
    return f"{words}: {end.message}" if end.message and end.code != _KILLED else words


def judge_success(cluster: TFCluster, ledger: Ledger) -> Verdict | None:
    """Decide whether the cluster has succeeded; a job without tasks does not satisfy a success policy."""
    policy = cluster.success_policy
    named = [job for name in policy.jobs if (job := cluster.job(name)) is not None]
    tasks = sum(job.replicas for job in named)
    done = sum(len(ledger.of(job.name).completed) for job in named)
    if not done or (policy.tasks == "All" and done < tasks):
        return None
    whose = "job" if len(policy.jobs) == 1 else "jobs"
    share = f"{done} of {tasks} tasks" if policy.tasks == "Any" else ("every task" if tasks > 1 else "the task")
    return Verdict(
        SUCCEEDED, reasons.TASKS_SUCCEEDED, f"{share} of {whose} {', '.join(policy.jobs)} ended with exit code 0"
    )


def judge_failure(cluster: TFCluster, task: Task, pod: Pod, ledger: Ledger) -> Verdict | None:
    """Decide whether a failed task fails the cluster."""
    policy = task.job.restart_policy
    words = words_for(pod)
    if policy == "Never":
        return Verdict(FAILED, reasons.TASK_FAILED, f"{task} failed and its restartPolicy is Never: {words}")
    if policy == "ExitCode" and pod.exit is not None and pod.exit.code < SIGNALLED:
        message = f"{task} failed, and its restartPolicy ExitCode restarts from exit code {SIGNALLED} up only: {words}"
        return Verdict(FAILED, reasons.PERMANENT_EXIT_CODE, message)
    limit = cluster.spec.backoff_limit
    if limit is not None and ledger.restarts >= limit:
        message = f"{task} failed after {ledger.restarts} of {limit} restarts: {words}"
        return Verdict(FAILED, reasons.BACKOFF_LIMIT_EXCEEDED, message)
    return None


def judge_deadline(cluster: TFCluster, ledger: Ledger, now: float) -> Verdict | None:
    """Decide whether the cluster has exceeded its deadline."""
    limit = cluster.spec.active_deadline_seconds
    if limit is None or not ledger.started_at or now < ledger.started_at + limit:
        return None
    return Verdict(FAILED, reasons.DEADLINE_EXCEEDED, f"not finished within activeDeadlineSeconds, {limit} s")


def seconds_left(cluster: TFCluster, ledger: Ledger, now: float) -> float | None:
    """Return the seconds until the deadline of a running cluster or the end of a finished one; None without a limit."""
    if ledger.verdict is None:
        limit, since = cluster.spec.active_deadline_seconds, ledger.started_at
    else:
        limit, since = cluster.spec.ttl_seconds_after_finished, ledger.finished_at
    return None if limit is None or not since else since + limit - now


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
