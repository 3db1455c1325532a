"""A pod that should be gone and is not: its node is dead, and its name is needed.

When its deletion was asked for is told by the API server's clock; how long that is ago we count by our own, from the
moment when we first saw it.
"""

from __future__ import annotations

from typing import Final

from tfcluster_operator.model.observed import ObservedPod
from tfcluster_operator.model.spec import TFCluster

#: Seconds after the end of its grace period from which a pod is called stuck.
STUCK_AFTER: Final = 10.0


def seconds_until_freed(cluster: TFCluster, pod: ObservedPod, now: float) -> float | None:
    """Give how long until a terminating pod is deleted by force; None where the user set no such time."""
    # NB: without grace it was deleted by force already, and only a finalizer keeps it.
    if cluster.force_delete_after is None or not pod.meta.terminating or not pod.meta.grace:
        return None
    return _gone_by(pod, now) + cluster.force_delete_after - now


def seconds_until_stuck(pod: ObservedPod, now: float) -> float:
    """Give how long until a terminating pod is called stuck."""
    return _gone_by(pod, now) + STUCK_AFTER - now


def _gone_by(pod: ObservedPod, now: float) -> float:
    return (pod.noted.leaving_since or now) + pod.meta.grace


def words_for(cluster: TFCluster, pod: ObservedPod) -> str:
    """Say what a stuck pod waits for and what can be done."""
    if pod.meta.finalizers and not pod.meta.grace:
        keepers = ", ".join(pod.meta.finalizers)
        return (
            f"pod {pod.meta.name} has ended and blocks its name: the finalizer {keepers} keeps it; "
            "whoever put it there must take it away"
        )
    where = f"node {pod.node} does not confirm its end" if pod.node else "nobody confirms its end"
    if cluster.force_delete_after is not None:
        cure = f"it is deleted by force {cluster.force_delete_after} s after its grace period"
    else:
        cure = f"set forceDeleteAfterSeconds, or `kubectl delete pod {pod.meta.name} --force` if the node is dead"
    return f"pod {pod.meta.name} still terminates and blocks its name: {where}; {cure}"
