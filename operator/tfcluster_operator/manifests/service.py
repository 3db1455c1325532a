"""The headless Service: it gives every pod of the cluster a DNS name that outlives the pod."""

from __future__ import annotations

from typing import Any

from tfcluster_operator.manifests import metadata
from tfcluster_operator.model import drift, naming
from tfcluster_operator.model.spec import TFCluster


def build_service(cluster: TFCluster) -> dict[str, Any]:
    """Build the Service of a cluster.

    Returns:
        A headless Service; addresses are published before pods are ready, because TensorFlow's tasks wait for each
        other's names (Kubernetes, "DNS for Services and Pods").
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata.owned(
            cluster, naming.service_name(cluster.name), labels=naming.cluster_labels(cluster.name)
        ),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {naming.LABEL_CLUSTER: cluster.name},
            "ports": drift.service_ports(cluster),
        },
    }
