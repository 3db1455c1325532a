"""How a pod ended: its program succeeded or failed, or the pod was deleted."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED, Ledger, Verdict
from tfcluster_operator.declaration.spec import Task, TFCluster
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
