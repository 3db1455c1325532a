"""Leaving pods: of tasks that are no longer declared, of an older template, terminating, or of a finished cluster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.life.roster import Place, Roster, Stage
from tfcluster_operator.objects.pod import Pod

#: The tasks that leave, by job, as the contract has them.
Leaving = Mapping[str, tuple[tuple[int, int], ...]]


def job_of(cluster: TFCluster, pod: Pod) -> Job | None:
    """Return the job that a pod's name states (names are immutable); None if the job is no longer declared."""
    first, index = naming.first_pod_name(pod.meta.name)[0], naming.index_of(pod.meta.name)
    return next((job for job in cluster.jobs if naming.pod_name(cluster.name, job.name, index) == first), None)


def leaving_of(roster: Roster) -> Leaving:
    """Return the leaving tasks whose pods still run, as one range per job: the chief disconnects first."""
    # The view changes only when the last of them ends, and its size does not depend on their number.  The tasks of a
    # job without drainTimeoutSeconds are not listed: their pods are deleted immediately.
    last: dict[str, int] = {}
    for pod in (*roster.surplus, *roster.leaving):
        job = job_of(roster.cluster, pod)
        if job is None or not job.drain_timeout_seconds or pod.meta.owner_uid != roster.cluster.uid:
            continue
        index = naming.index_of(pod.meta.name)
        if pod.phase == "Running" and not pod.ended and index >= job.replicas:
            last[job.name] = max(index, last.get(job.name, 0))
    return {job.name: ((job.replicas, last[job.name] + 1),) for job in roster.cluster.jobs if job.name in last}


def seconds_to_drain(job: Job | None, pod: Pod, now: float) -> float:
    """Return how many seconds to keep the pod of a task that is no longer declared; 0 or less: delete it now."""
    if job is None or not job.drain_timeout_seconds or pod.phase != "Running" or pod.ended:
        return 0.0
    return (surplus_since(pod, now) or now) + job.drain_timeout_seconds - now


def surplus_since(pod: Pod, now: float) -> float:
    """Return since when a pod is surplus; 0.0 if this was not noted, or the noted time is in the future."""
    return pod.surplus_since if pod.surplus_since <= now else 0.0


#: Seconds after the end of its grace period until a pod is reported as stuck.
STUCK_AFTER: Final = 10.0


def seconds_until_freed(cluster: TFCluster, pod: Pod, now: float) -> float | None:
    """Return the seconds until a terminating pod is deleted by force; None if the user has not set such a time."""
    # A grace period of 0 means that it was deleted by force already; only a finalizer keeps it.
    if cluster.spec.force_delete_after_seconds is None or not pod.meta.terminating or not pod.meta.grace:
        return None
    return _gone_by(pod, now) + cluster.spec.force_delete_after_seconds - now


def seconds_until_stuck(pod: Pod, now: float) -> float:
    """Return the seconds until a terminating pod is reported as stuck."""
    return _gone_by(pod, now) + STUCK_AFTER - now


def _gone_by(pod: Pod, now: float) -> float:
    return (pod.noted.leaving_since or now) + pod.meta.grace


def stuck_words(cluster: TFCluster, pod: Pod) -> str:
    """Return what a stuck pod waits for and what can be done."""
    if pod.meta.finalizers and not pod.meta.grace:
        keepers = ", ".join(pod.meta.finalizers)
        return (
            f"pod {pod.meta.name} has ended but still exists: the finalizer {keepers} remains; "
            "its controller must remove it"
        )
    where = f"node {pod.node} has not confirmed its end" if pod.node else "its end is not confirmed"
    if cluster.spec.force_delete_after_seconds is not None:
        cure = f"it will be force-deleted {cluster.spec.force_delete_after_seconds} s after its grace period"
    else:
        cure = f"set forceDeleteAfterSeconds, or `kubectl delete pod {pod.meta.name} --force` if the node is dead"
    return f"pod {pod.meta.name} is still terminating: {where}; {cure}"


def pods_to_clean(roster: Roster) -> Iterator[Pod]:
    """Select the pods of a finished cluster to delete: with cleanPodPolicy Running, those that have not ended."""
    policy = roster.cluster.spec.clean_pod_policy
    if policy == "None":
        return
    for pod in roster.staying():
        if policy == "All" or not pod.at_rest:
            yield pod
    if policy == "All":
        yield from roster.kept()


@dataclass(frozen=True, slots=True)
class Rollout:
    """The rollout of one job: tasks with an outdated pod, with one that terminates already, and those not running."""

    job: Job
    outdated: tuple[Place, ...]
    leaving: tuple[Place, ...]
    unavailable: tuple[Place, ...]

    @property
    def old(self) -> tuple[Place, ...]:
        """Every task whose pod has an older template."""
        return (*self.outdated, *self.leaving)


def rollout_of(roster: Roster, job: Job) -> Rollout:
    """Compare a job's pods with its template; completed tasks are left out, they do not run again."""
    # A shortcut: this excludes nearly all of thousands of tasks.
    places = [place for place in roster.of(job) if place.stage is not Stage.SERVING or not place.settled]
    places = [place for place in places if place.stage is not Stage.COMPLETED]
    old = [place for place in places if place.outdated]
    return Rollout(
        job,
        outdated=tuple([place for place in old if place.stage is not Stage.TERMINATING]),
        leaving=tuple([place for place in old if place.stage is Stage.TERMINATING]),
        unavailable=tuple([place for place in places if not place.serving]),
    )


def to_replace(cluster: TFCluster, rollout: Rollout) -> Sequence[Pod]:
    """Select the outdated pods to delete now."""
    # RollingUpdate goes from the highest index.  Outdated pods that do not run come first, so that a template that
    # never became ready can be corrected.
    strategy = cluster.spec.update_strategy
    if strategy.type == "OnDelete":
        return ()
    if strategy.type == "Recreate":
        return tuple(place.pod for place in rollout.outdated if place.pod is not None)
    return tuple(_in_order(rollout, strategy.within(rollout.job.replicas)))


def _in_order(rollout: Rollout, max_unavailable: int) -> Iterator[Pod]:
    room = max_unavailable - len(rollout.unavailable)
    for place in reversed(rollout.outdated):
        if place.pod is None:
            continue
        if not place.serving:
            yield place.pod
        elif room > 0:
            room -= 1
            yield place.pod
