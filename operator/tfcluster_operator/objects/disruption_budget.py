"""The PodDisruptionBudget of a job: how many of its tasks an eviction, for example by a drain, must leave running."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.objects import base
from tfcluster_operator.objects.base import Facts, Meta, Metadata, Wanted


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


def _names(cluster: TFCluster, _: object = None) -> list[str]:
    return [_name(cluster, job) for job in cluster.jobs if job.min_available is not None]


def _name(cluster: TFCluster, job: Job) -> str:
    return f"{cluster.name}-{naming.dns_job(job.name)}"


def _wanted(facts: Facts) -> Iterator[Wanted]:
    # The remaining pods of a finished cluster must not block a drain.
    for job in () if facts.finished else facts.cluster.jobs:
        if job.min_available is not None:
            about = facts.cluster, job, spec_of(facts.cluster, job, left=facts.open_tasks(job))
            yield Wanted(_name(facts.cluster, job), partial(build, *about), partial(change, *about))


# Pods do not wait for a budget: it protects only existing pods.
KIND: Final = base.kind_of(
    DisruptionBudget,
    "poddisruptionbudgets",
    _Wire,
    lambda wire: DisruptionBudget(Meta.read(wire.metadata), base.digest_of(wire.spec), wire.spec.get("selector") or {}),
    _names,
    wanted=_wanted,
    edited=reasons.BUDGET_CHANGED,
    api="/apis/policy/v1",
)


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
    name, labels = _name(cluster, job), naming.job_labels(cluster.name, job.name)
    return base.manifest(cluster, "policy/v1", "PodDisruptionBudget", name, labels, spec=spec)


def change(cluster: TFCluster, job: Job, spec: Mapping[str, Any], existing: DisruptionBudget) -> dict[str, Any] | None:
    """Return the patch that corrects a budget, or None if nothing differs."""
    changed = None
    if existing.digest != base.digest_of(spec):
        selector = base.selecting(spec["selector"]["matchLabels"], existing.selector)
        changed = {"maxUnavailable": None, **spec, "selector": selector}
    return base.change_of(existing.meta, labels=naming.job_labels(cluster.name, job.name), spec=changed)
