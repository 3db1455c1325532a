"""What a failed task means by its job's restartPolicy, and when the restarts are used up."""

from __future__ import annotations

from tfcluster_operator.model import reasons
from tfcluster_operator.model.ledger import FAILED, Ledger, Verdict
from tfcluster_operator.model.observed import ObservedPod
from tfcluster_operator.model.policies.ending import SIGNALLED, words_for
from tfcluster_operator.model.spec import Task, TFCluster


def judge_failure(cluster: TFCluster, task: Task, pod: ObservedPod, ledger: Ledger) -> Verdict | None:
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
