"""Kubernetes Events: what was done and why, a few a pass and never one a task."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tfcluster_operator.kube import errors
from tfcluster_operator.kube.client import Client
from tfcluster_operator.model import naming
from tfcluster_operator.model.actions import Action, CreateConfigMap, CreatePod, CreateService, Delete, Patch
from tfcluster_operator.model.spec import TFCluster

_NAMED: Final = 4

Severity = Literal["Normal", "Warning"]


async def emit(client: Client, cluster: TFCluster, *, severity: Severity, reason: str, message: str) -> None:
    """Post one Event about a TFCluster; an Event that is refused is no reason to fail.

    Args:
        client: the requests.
        cluster: what the Event is about.
        severity: Normal or Warning.
        reason: CamelCase, from :mod:`tfcluster_operator.model.reasons`.
        message: what happened, in words.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{cluster.name}.{time.time_ns():x}", "namespace": cluster.namespace},
        "involvedObject": {
            "apiVersion": naming.API_VERSION,
            "kind": naming.KIND,
            "name": cluster.name,
            "namespace": cluster.namespace,
            "uid": cluster.uid,
        },
        "type": severity,
        "reason": reason,
        "message": message[:1000],
        "source": {"component": naming.FIELD_MANAGER},
        "reportingComponent": naming.FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        path = f"/api/v1/namespaces/{cluster.namespace}/events"
        await client.request("POST", path, body=body, urgent=False)
    except errors.KubeError:
        return


def told(actions: Iterable[Action]) -> Iterator[tuple[str, str]]:
    """Sum up what was done as (reason, message), one for each reason: a new cluster is one Event."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)  # reason, verb, kind
    for action in actions:
        match action:
            case CreateService(name=name):
                groups[action.reason, "created", "Service"].append(name)
            case CreateConfigMap(views=views):
                groups[action.reason, "created", "ConfigMap"].append(views.name)
            case CreatePod(name=name, replaces=replaces):
                groups[action.reason, "replaced" if replaces else "created", "Pod"].append(name)
            case Patch(name=name):
                groups[action.reason, "updated", action.kind].append(name)
            case Delete(name=name):
                groups[action.reason, "deleted", action.kind].append(name)
    messages: dict[str, list[str]] = defaultdict(list)
    for (reason, verb, kind), names in groups.items():
        listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        messages[reason].append(f"{verb} {len(names)} {kind}{'s' if len(names) > 1 else ''}: {listed}")
    for reason, parts in messages.items():
        yield reason, "; ".join(parts)
