"""The PodDisruptionBudget of a job: the eviction API asks it before a node that is drained takes a pod away."""

from __future__ import annotations

from typing import Any

from tfcluster_operator.manifests import metadata
from tfcluster_operator.model import naming
from tfcluster_operator.model.budgets import Budget
from tfcluster_operator.model.spec import TFCluster


def build_disruption_budget(cluster: TFCluster, budget: Budget) -> dict[str, Any]:
    """Build one PodDisruptionBudget."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata.owned(cluster, budget.name, labels=naming.job_labels(cluster.name, budget.job)),
        "spec": budget.spec,
    }
