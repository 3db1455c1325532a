"""The PodDisruptionBudgets of a cluster: how many tasks of a job an eviction must leave at work."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfcluster_operator.model import naming
from tfcluster_operator.model.digests import digest
from tfcluster_operator.model.roster import Roster
from tfcluster_operator.model.spec import Job


@dataclass(frozen=True, slots=True)
class Budget:
    """One wanted PodDisruptionBudget: its name, the job whose pods it protects, its spec and the spec's digest."""

    name: str
    job: str
    spec: Mapping[str, Any]
    digest: str


def budgets_of(roster: Roster) -> Iterator[Budget]:
    """Work out the budget of each job that declares one."""
    for job in roster.cluster.jobs:
        if job.min_available is not None:
            yield _budget(roster.cluster.name, job, job.min_available, left=sum(1 for _ in roster.open(job)))


def _budget(cluster: str, job: Job, least: int | str, *, left: int) -> Budget:
    spec = {
        # NB: a share, or maxUnavailable, would be of the number in the TFCluster's scale subresource: of its workers.
        "minAvailable": min(left, _rounded_up(least, job.replicas)),
        "selector": {"matchLabels": {naming.LABEL_CLUSTER: cluster, naming.LABEL_JOB: job.name}},
        # A pod that does not work protects nobody, and must not keep a node from being drained.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return Budget(naming.budget_name(cluster, job.name), job.name, spec, digest_of(spec))


def digest_of(spec: Mapping[str, Any]) -> str:
    """Give the digest of a PodDisruptionBudget's spec, whatever the order of its fields."""
    return digest(json.dumps(spec, sort_keys=True, separators=(",", ":")))


def _rounded_up(wanted: int | str, replicas: int) -> int:
    """Turn a share into a number as Kubernetes does for minAvailable."""
    return wanted if isinstance(wanted, int) else -(-replicas * int(wanted.removesuffix("%")) // 100)
