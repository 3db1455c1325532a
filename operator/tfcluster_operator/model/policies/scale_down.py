"""When the pod of a task that is no longer declared goes: after spec.jobs.J.drainTimeoutSeconds."""

from __future__ import annotations

from tfcluster_operator.model.observed import ObservedPod
from tfcluster_operator.model.spec import Job


def seconds_to_drain(job: Job | None, pod: ObservedPod, now: float) -> float:
    """Give how long a surplus pod stays.

    Args:
        job: its job, or None where that is no longer declared either.
        pod: the pod; its annotation tells since when it is surplus, which is when the smaller view was published.
        now: the time, in seconds since the epoch.

    Returns:
        Seconds, 0 or less where it goes now; the full time where nobody noted yet that it is surplus.
    """
    if job is None or not job.drain_timeout_seconds or pod.phase != "Running" or pod.ended:
        return 0.0
    return (since_when(pod, now) or now) + job.drain_timeout_seconds - now


def since_when(pod: ObservedPod, now: float) -> float:
    """Tell since when a pod is surplus; 0.0 where nobody noted it, or a clock that was wrong did: it lies ahead."""
    return pod.surplus_since if pod.surplus_since <= now else 0.0
