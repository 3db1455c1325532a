"""Where a pod may run relative to others of its cluster: the rules that spec.scheduling adds to a template's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tfcluster_operator.model import naming, places
from tfcluster_operator.model.spec import Colocation, Job, Spread, TFCluster

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
#: The largest weight there is (Kubernetes, "WeightedPodAffinityTerm").
_WEIGHT: Final = 100


def with_places(spec: Mapping[str, Any], cluster: TFCluster, job: Job) -> dict[str, Any]:
    """Add the rules of a job's colocation and spread to a pod's spec.

    Returns:
        The spec.  Rules that the template has stay, and come first.
    """
    placed = dict(spec)
    if job.colocation is not None:
        placed["affinity"] = _near(spec.get("affinity") or {}, job.colocation, places.colocated(cluster, job))
    if job.spread:
        selector = {naming.LABEL_CLUSTER: cluster.name, naming.LABEL_JOB: job.name}
        known = spec.get("topologySpreadConstraints") or ()
        placed["topologySpreadConstraints"] = [*known, *(_apart(one, selector) for one in job.spread)]
    return placed


def _near(affinity: Mapping[str, Any], colocation: Colocation, label: Mapping[str, str]) -> dict[str, Any]:
    # NB: a pod that matches its own rule may begin a domain while no other pod matches; the next ones must follow it.
    rule: dict[str, Any] = {"labelSelector": {"matchLabels": dict(label)}, "topologyKey": colocation.topology_key}
    kind = _REQUIRED
    if colocation.when_unsatisfiable == "ScheduleAnyway":
        kind, rule = _PREFERRED, {"weight": _WEIGHT, "podAffinityTerm": rule}
    known: Mapping[str, Any] = affinity.get("podAffinity") or {}
    return {**affinity, "podAffinity": {**known, kind: [*(known.get(kind) or ()), rule]}}


def _apart(spread: Spread, selector: Mapping[str, str]) -> dict[str, Any]:
    return {
        "topologyKey": spread.topology_key,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": spread.when_unsatisfiable,
        "labelSelector": {"matchLabels": dict(selector)},
        # NB: Kubernetes' default counts a tainted node as an empty domain, and no other may have more than it.
        "nodeTaintsPolicy": "Honor",
    }
