"""Read a TFCluster's objects in the same way as the operator, so that both judge them with the same code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.objects.pod import Pod


def observe_pods(bodies: Iterable[Mapping[str, Any]], now: float) -> dict[str, Pod]:
    return {pod.meta.name: pod for pod in (_observe(body, now) for body in bodies)}


def read_objects(kind: str, bodies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Read objects other than pods, by their names."""
    read = KINDS[kind].read
    return {body["metadata"]["name"]: read(json.dumps(body).encode()) for body in bodies}


def _observe(body: Mapping[str, Any], now: float) -> Pod:
    # managedFields are half of a pod's text and are not needed here.
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    read = KINDS[Pod.KIND].read(json.dumps({**body, "metadata": metadata}).encode())
    if not isinstance(read, Pod):
        raise TypeError(f"{type(read).__name__} is no pod")
    pod = read.seen(None, now)
    # The operator records when it first saw the deletion; a single reading only has the server's timestamp.
    noted = replace(pod.noted, leaving_since=pod.meta.asked_to_go_at)
    return replace(pod, noted=noted) if pod.meta.terminating else pod
