"""The NetworkPolicies of a cluster's isolation: they decide who reaches its tasks, where the network enforces them."""

from __future__ import annotations

from typing import Any

from tfcluster_operator.manifests import metadata
from tfcluster_operator.model import drift
from tfcluster_operator.model.isolation import Policy
from tfcluster_operator.model.spec import TFCluster


def build_network_policy(cluster: TFCluster, policy: Policy) -> dict[str, Any]:
    """Build one NetworkPolicy."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata.owned(cluster, policy.name, labels=drift.policy_labels(cluster, policy)),
        "spec": policy.spec,
    }
