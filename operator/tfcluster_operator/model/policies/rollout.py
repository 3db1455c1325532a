"""What an edit of a template does to the pods that there are, by spec.updateStrategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfcluster_operator.model import naming
from tfcluster_operator.model.ledger import Ledger
from tfcluster_operator.model.observed import Observed, ObservedPod
from tfcluster_operator.model.spec import Job, Task, TFCluster


@dataclass(frozen=True, slots=True)
class Rollout:
    """Where the pods of one job are.

    ``outdated`` are of an older template and stay, ``leaving`` are so and terminate already; ``unavailable`` are the
    tasks that are not at work.
    """

    job: Job
    outdated: tuple[tuple[Task, ObservedPod], ...]
    leaving: tuple[tuple[Task, ObservedPod], ...]
    unavailable: tuple[Task, ...]

    @property
    def old(self) -> tuple[tuple[Task, ObservedPod], ...]:
        """Every pod of an older template."""
        return (*self.outdated, *self.leaving)


def rollout_of(cluster: TFCluster, job: Job, observed: Observed, ledger: Ledger) -> Rollout:
    """Compare a job's pods with its template; tasks that have completed are left out, they are not run again."""
    outdated: list[tuple[Task, ObservedPod]] = []
    leaving: list[tuple[Task, ObservedPod]] = []
    unavailable = []
    completed = ledger.of(job.name).completed
    for index in range(job.replicas):
        if index in completed:
            continue
        task = Task(job, index)
        pod = observed.pods.get(naming.pod_name(cluster.name, job.name, index))
        ours = pod is not None and pod.meta.owner_uid == cluster.uid
        if pod is None or not ours or not pod.serving:
            unavailable.append(task)
        if pod is not None and ours and is_outdated(job, pod):
            (leaving if pod.meta.terminating else outdated).append((task, pod))
    return Rollout(job, tuple(outdated), tuple(leaving), tuple(unavailable))


def is_outdated(job: Job, pod: ObservedPod) -> bool:
    """Tell whether a pod was made from another template than the present one."""
    return pod.meta.annotations.get(naming.ANNOTATION_TEMPLATE_HASH) != job.template_hash


def to_replace(cluster: TFCluster, rollout: Rollout) -> Sequence[ObservedPod]:
    """Choose the outdated pods that are deleted now.

    Args:
        cluster: the declaration.
        rollout: where the job's pods are.

    Returns:
        All of them under Recreate, none under OnDelete.  Under RollingUpdate from the highest index: at most
        maxUnavailable tasks are down at a time, and an outdated pod that does not work anyway goes first, so that a
        template that never became ready can be corrected.
    """
    strategy = cluster.update_strategy
    if strategy.type == "OnDelete":
        return ()
    if strategy.type == "Recreate":
        return tuple(pod for _, pod in rollout.outdated)
    return tuple(_in_order(rollout, strategy.within(rollout.job.replicas)))


def _in_order(rollout: Rollout, max_unavailable: int) -> Iterator[ObservedPod]:
    room = max_unavailable - len(rollout.unavailable)
    for _, pod in reversed(rollout.outdated):
        if not pod.serving:
            yield pod
        elif room > 0:
            room -= 1
            yield pod
