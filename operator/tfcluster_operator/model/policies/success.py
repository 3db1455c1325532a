"""When a cluster has succeeded: exactly by spec.successPolicy."""

from __future__ import annotations

from tfcluster_operator.model import reasons
from tfcluster_operator.model.ledger import SUCCEEDED, Ledger, Verdict
from tfcluster_operator.model.spec import TFCluster


def judge_success(cluster: TFCluster, ledger: Ledger) -> Verdict | None:
    """Decide whether the cluster has succeeded.

    Returns:
        The verdict, or None while the policy is not met.  Jobs without any task meet none: nothing has succeeded yet.
    """
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
