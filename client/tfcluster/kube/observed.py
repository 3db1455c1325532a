"""Read a TFCluster's objects in the same way as the operator, so that both judge them with the same code."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.objects.pod import Pod


def read_objects(kind: str, bodies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Read objects, by their names."""
    read, found = KINDS[kind].read, {}
    for body in bodies:
        # managedFields are half of a pod's text and are not needed here.
        metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
        found[metadata["name"]] = read(json.dumps({**body, "metadata": metadata}).encode())
    return found


def observe_pods(bodies: Iterable[Mapping[str, Any]], now: float) -> dict[str, Pod]:
    pods: dict[str, Pod] = {name: one.seen(None, now) for name, one in read_objects(Pod.KIND, bodies).items()}
    for name, pod in pods.items():
        if pod.meta.terminating:
            # The operator records when it first saw the deletion; a single reading only has the server's timestamp.
            pods[name] = replace(pod, noted=replace(pod.noted, leaving_since=pod.meta.asked_to_go_at))
    return pods
