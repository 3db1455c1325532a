"""What is deleted when the cluster has finished: spec.cleanPodPolicy."""

from __future__ import annotations

from collections.abc import Iterator

from tfcluster_operator.model.observed import Observed, ObservedPod
from tfcluster_operator.model.spec import TFCluster


def pods_to_clean(cluster: TFCluster, observed: Observed) -> Iterator[ObservedPod]:
    """Choose the pods of a finished cluster that are deleted.

    Args:
        cluster: the declaration.
        observed: what exists.

    Yields:
        Under Running, those that have not ended, so that the logs of the others stay; under All every one.
    """
    if cluster.clean_pod_policy == "None":
        return
    for pod in observed.pods.values():
        if pod.meta.owner_uid != cluster.uid or pod.meta.terminating:
            continue
        if cluster.clean_pod_policy == "All" or not pod.at_rest:
            yield pod
