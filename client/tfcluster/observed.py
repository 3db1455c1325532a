"""What exists for a TFCluster, read as the operator reads it, so that both judge it by the same decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tfcluster_operator.kube import wire
from tfcluster_operator.model.observed import ObservedPod


def observe_pods(bodies: Iterable[Mapping[str, Any]], now: float) -> dict[str, ObservedPod]:
    """Read pods.

    Args:
        bodies: the objects as the API server gave them.
        now: the time, in seconds since the epoch.

    Returns:
        The pods by their names.
    """
    return {pod.meta.name: pod for pod in (_observe(body, now) for body in bodies)}


def _observe(body: Mapping[str, Any], now: float) -> ObservedPod:
    # NB: who wrote which field is half of a pod's text, and nothing here asks for it.
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    read = wire.PODS.read(json.dumps({**body, "metadata": metadata}).encode())
    if not isinstance(read, ObservedPod):
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
