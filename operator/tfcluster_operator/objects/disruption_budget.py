"""The PodDisruptionBudget of a job: how many of its tasks an eviction, for example by a drain, must leave running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.objects import base
from tfcluster_operator.objects.base import Meta, Metadata


class _Wire(msgspec.Struct):
    metadata: Metadata
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget: the digest of its spec, and its selector, because a patch must name removed labels."""

    KIND: ClassVar = "PodDisruptionBudget"
    meta: Meta
    digest: str
    selector: Mapping[str, Any]


KIND: Final = base.kind_of(
    DisruptionBudget.KIND,
    "poddisruptionbudgets",
    _Wire,
    lambda wire: DisruptionBudget(Meta.read(wire.metadata), base.digest_of(wire.spec), wire.spec.get("selector") or {}),
    lambda cluster, _: [naming.budget_name(cluster.name, one.name) for one in protected_jobs(cluster)],
    api="/apis/policy/v1",
)


def protected_jobs(cluster: TFCluster) -> list[Job]:
    """Return the jobs that declare a budget."""
    return [job for job in cluster.jobs if job.min_available is not None]


def spec_of(cluster: TFCluster, job: Job, left: int) -> dict[str, Any]:
    """Build the spec of a job's budget; ``left`` is the number of its tasks that have not completed."""
    least = job.min_available
    if isinstance(least, str):  # a share is rounded up, as Kubernetes does for minAvailable
        least = -(-job.replicas * int(least.removesuffix("%")) // 100)
    return {
        # Kubernetes would take a share, or maxUnavailable, of the TFCluster's scale subresource: of its workers.
        "minAvailable": min(left, least or 0),
        "selector": {"matchLabels": {naming.LABEL_CLUSTER: cluster.name, naming.LABEL_JOB: job.name}},
        # A pod that is not ready must not block a node's drain.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def build(cluster: TFCluster, job: Job, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Build the budget of a job."""
    name, labels = naming.budget_name(cluster.name, job.name), naming.job_labels(cluster.name, job.name)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": base.owned(cluster, name, labels=labels),
        "spec": spec,
    }


def change(cluster: TFCluster, job: Job, spec: Mapping[str, Any], existing: DisruptionBudget) -> dict[str, Any] | None:
    """Return the patch that corrects a budget, or None if nothing differs."""
    changed = None
    if existing.digest != base.digest_of(spec):
        selector = base.selecting(spec["selector"]["matchLabels"], existing.selector)
        changed = {"maxUnavailable": None, **spec, "selector": selector}
    return base.change_of(existing.meta, labels=naming.job_labels(cluster.name, job.name), spec=changed)
