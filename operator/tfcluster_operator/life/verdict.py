"""When a cluster has succeeded or failed: by successPolicy, restartPolicy, backoffLimit and activeDeadlineSeconds."""

from __future__ import annotations

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED, Ledger, Verdict
from tfcluster_operator.declaration.spec import Task, TFCluster
from tfcluster_operator.life.ending import SIGNALLED, words_for
from tfcluster_operator.objects.pod import Pod


def judge_success(cluster: TFCluster, ledger: Ledger) -> Verdict | None:
    """Decide whether the cluster has succeeded; jobs without any task meet no policy."""
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
    limit = cluster.backoff_limit
    if limit is not None and ledger.restarts >= limit:
        message = f"{task} failed after {ledger.restarts} of {limit} restarts: {words}"
        return Verdict(FAILED, reasons.BACKOFF_LIMIT_EXCEEDED, message)
    return None


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
