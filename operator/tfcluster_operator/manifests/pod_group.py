"""The PodGroup of a gang: the scheduler finds places for so many of its pods at once, or for none."""

from __future__ import annotations

from typing import Any

from tfcluster_operator.manifests import metadata
from tfcluster_operator.model import naming
from tfcluster_operator.model.actions import CreatePodGroup
from tfcluster_operator.model.drift import gang_labels
from tfcluster_operator.model.gang_schedulers import KUBERNETES
from tfcluster_operator.model.spec import TFCluster


def build_pod_group(cluster: TFCluster, gang: CreatePodGroup) -> dict[str, Any]:
    """Build one PodGroup.

    Args:
        cluster: the declaration.
        gang: what it is for (Kubernetes, "Gang Scheduling"; scheduler-plugins, "Coscheduling"; Volcano, "PodGroup").
    """
    scheduler = KUBERNETES if cluster.gang is None else cluster.gang.scheduler
    priority = gang.priority_class if scheduler.has_priority else ""
    return {
        "apiVersion": scheduler.api,
        "kind": "PodGroup",
        "metadata": metadata.owned(
            cluster,
            gang.name,
            labels=gang_labels(cluster, gang.job),
            annotations={naming.ANNOTATION_PRIORITY: priority} if priority else None,
        ),
        "spec": {
            **scheduler.counting(gang.min_count),
            **({"priorityClassName": priority} if priority else {}),
        },
    }
