"""Which jobs may start: spec.jobs.J.startAfter, once; a job that has started is never held back again."""

from __future__ import annotations

from tfcluster_operator.model import naming
from tfcluster_operator.model.ledger import Ledger
from tfcluster_operator.model.observed import Observed
from tfcluster_operator.model.spec import Job, TFCluster


def awaited_jobs(cluster: TFCluster, job: Job, observed: Observed, ledger: Ledger) -> list[str]:
    """Say what a job waits for.

    Args:
        cluster: the declaration.
        job: the job that wants to start.
        observed: what exists.
        ledger: which tasks were started or are complete.

    Returns:
        Each job that is not ready yet as "ps (1 of 2 ready)"; empty where this job may start or has started.
    """
    record = ledger.of(job.name)
    if record.started or record.failing:
        return []
    waiting = []
    for name in job.start_after:
        earlier = cluster.job(name)
        if earlier is None:
            continue
        ready = sum(_is_ready(cluster, earlier, index, observed, ledger) for index in range(earlier.replicas))
        if ready < earlier.replicas:
            waiting.append(f"{name} ({ready} of {earlier.replicas} ready)")
    return waiting


def _is_ready(cluster: TFCluster, job: Job, index: int, observed: Observed, ledger: Ledger) -> bool:
    record = ledger.of(job.name)
    if index in record.completed:
        return True
    pod = observed.pods.get(naming.pod_name(cluster.name, job.name, index))
    return (
        pod is not None and pod.meta.owner_uid == cluster.uid and pod.incarnation == record.incarnation and pod.serving
    )
