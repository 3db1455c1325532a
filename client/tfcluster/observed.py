"""What exists for a TFCluster, read as the operator reads it, so that both judge it by the same decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.objects.observed import Observed
from tfcluster_operator.objects.pod import Pod


def observe_pods(bodies: Iterable[Mapping[str, Any]], now: float) -> dict[str, Pod]:
    """Read pods."""
    return {pod.meta.name: pod for pod in (_observe(body, now) for body in bodies)}


def observe(
    services: Iterable[Mapping[str, Any]],
    config_maps: Iterable[Mapping[str, Any]],
    policies: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    now: float,
    *,
    workloads: Iterable[Mapping[str, Any]] = (),
    no_workloads: str = "",
) -> Observed:
    """Read everything that exists for a TFCluster."""
    found: dict[str, dict[str, Any]] = {}
    kinds = {"Service": services, "ConfigMap": config_maps, "NetworkPolicy": policies, "Workload": workloads}
    for kind, bodies in kinds.items():
        read = KINDS[kind].read
        found[kind] = {body["metadata"]["name"]: read(json.dumps(body).encode()) for body in bodies}
    return Observed(
        objects=found,
        lacking={"Workload": no_workloads} if no_workloads else {},
        pods=observe_pods(pods, now),
    )


def _observe(body: Mapping[str, Any], now: float) -> Pod:
    # NB: who wrote which field is half of a pod's text, and nothing here asks for it.
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    read = KINDS[Pod.KIND].read(json.dumps({**body, "metadata": metadata}).encode())
    if not isinstance(read, Pod):
        raise TypeError(f"{type(read).__name__} is no pod")
    pod = read.seen(None, now)
    asked = seconds_of(metadata.get("deletionTimestamp")) - pod.meta.grace
    # NB: the operator notes when it first saw the deletion; who looks once has only the server's word.
    return replace(pod, noted=replace(pod.noted, leaving_since=asked)) if pod.meta.terminating else pod


def seconds_of(text: Any) -> float:
    """Read a time of Kubernetes; 0.0 where there is none, or it is no time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except (TypeError, ValueError):
        return 0.0
