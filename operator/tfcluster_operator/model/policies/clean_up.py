"""What is deleted when the cluster has finished: spec.cleanPodPolicy."""

from __future__ import annotations

from collections.abc import Iterator

from tfcluster_operator.model.observed import ObservedPod
from tfcluster_operator.model.roster import Roster


def pods_to_clean(roster: Roster) -> Iterator[ObservedPod]:
    """Choose the pods of a finished cluster that are deleted.

    Yields:
        Under Running, those that have not ended, so that the logs of the others stay; under All every one.
    """
    policy = roster.cluster.clean_pod_policy
    if policy == "None":
        return
    for pod in roster.staying():
        if policy == "All" or not pod.at_rest:
            yield pod
    if policy == "All":
        yield from roster.kept()
