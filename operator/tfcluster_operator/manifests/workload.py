"""The Workload by which a cluster asks its queue for quota: Kueue admits it, and takes the quota back."""

from __future__ import annotations

from typing import Any, Final

from tfcluster_operator.manifests import metadata
from tfcluster_operator.model import naming
from tfcluster_operator.model.actions import Wanted
from tfcluster_operator.model.spec import TFCluster

_OF_PODS: Final = {"group": "scheduling.k8s.io", "kind": "PriorityClass"}
_OF_WORKLOADS: Final = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}


def build_workload(cluster: TFCluster, claim: Wanted) -> dict[str, Any]:
    """Build one Workload.

    Returns:
        The Workload, without its priority: that is the value of the class that it names.
    """
    named = {**(_OF_PODS if claim.priority_of_pods else _OF_WORKLOADS), "name": claim.priority_class}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata.owned(
            cluster,
            claim.name,
            labels=naming.cluster_labels(cluster.name),
            annotations={naming.ANNOTATION_ASKS: claim.asks},
        ),
        "spec": {
            "queueName": claim.queue,
            "podSets": [dict(one) for one in claim.pod_sets],
            **({"priorityClassRef": named} if claim.priority_class else {}),
        },
    }
