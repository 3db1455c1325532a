"""Tasks that leave: they are declared no more, and their pods still run.

Every view tells of them, so that their programs can finish, and the coordinator can let go of them first.  It is told
of a range, from the first task that is declared no more to the last one that still runs.  So a view is not written for
each of many that go, only when the last one of them does, and it takes the same few bytes however many they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfcluster_operator.model import naming
from tfcluster_operator.model.observed import ObservedPod
from tfcluster_operator.model.roster import Roster
from tfcluster_operator.model.spec import Job, TFCluster

#: The tasks that leave, by job, as the contract has them.
Leaving = Mapping[str, tuple[tuple[int, int], ...]]


def job_of(cluster: TFCluster, pod: ObservedPod) -> Job | None:
    """Give the job of a pod by the pod's name, which nobody can edit; None where the job is declared no more."""
    first, index = naming.first_pod_name(pod.meta.name)[0], naming.index_of(pod.meta.name)
    return next((job for job in cluster.jobs if naming.pod_name(cluster.name, job.name, index) == first), None)


def leaving_of(roster: Roster) -> Leaving:
    """Tell which tasks leave.

    Returns:
        The range of each job of which a task leaves; a job without drainTimeoutSeconds has none, its pods go at once.
    """
    last: dict[str, int] = {}
    for pod in (*roster.surplus, *roster.leaving):
        job = job_of(roster.cluster, pod)
        if job is None or not job.drain_timeout_seconds or pod.meta.owner_uid != roster.cluster.uid:
            continue
        index = naming.index_of(pod.meta.name)
        if pod.phase == "Running" and not pod.ended and index >= job.replicas:
            last[job.name] = max(index, last.get(job.name, 0))
    return {job.name: ((job.replicas, last[job.name] + 1),) for job in roster.cluster.jobs if job.name in last}
