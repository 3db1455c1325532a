"""Kubernetes Events: what was done and why, a few per reconcile and never one per task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.kube import errors
from tfcluster_operator.kube.client import Client
from tfcluster_operator.plan.actions import Action, Create, Delete, Patch, Try

#: How many items of a list are named.
_NAMED: Final = 4


async def emit(client: Client, cluster: TFCluster, reason: str, message: str, *, warning: bool) -> None:
    """Post one Event about a TFCluster; a rejected Event is ignored."""
    wall = client.clock.wall()
    now = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{cluster.name}.{int(wall * 1e9):x}", "namespace": cluster.namespace},
        "involvedObject": {
            "apiVersion": naming.API_VERSION,
            "kind": naming.KIND,
            "name": cluster.name,
            "namespace": cluster.namespace,
            "uid": cluster.uid,
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message[:1000],
        "source": {"component": naming.FIELD_MANAGER},
        "reportingComponent": naming.FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    with suppress(errors.KubeError):
        await client.request("POST", f"/api/v1/namespaces/{cluster.namespace}/events", body=body, urgent=False)


def told(actions: Iterable[Action]) -> Iterator[tuple[str, str]]:
    """Summarize what was done as (reason, message), one for each reason: a new cluster is one Event."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)  # reason, verb, kind
    for action in actions:
        groups[action.reason, _verb(action), action.kind].append(action.name)
    messages: dict[str, list[str]] = defaultdict(list)
    for (reason, verb, kind), names in groups.items():
        messages[reason].append(f"{verb} {len(names)} {_spell(kind, len(names))}: {few(names)}")
    if reasons.POD_KEPT in messages:
        messages[reasons.POD_KEPT].append("kubectl logs shows what they left")
    for reason, parts in messages.items():
        yield reason, "; ".join(parts)


def few(words: Sequence[str], between: str = ", ") -> str:
    """List the first few, and the number of the others."""
    more = len(words) - _NAMED
    return between.join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _spell(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"


def _verb(action: Action) -> str:
    match action:
        case Create(task=None) | Create(reason=reasons.CREATED):
            return "created"
        case Create(reason=reason, name=name):
            # If the name is another one, the failed pod is kept and not replaced.
            later = naming.first_pod_name(name)[1] and reason == reasons.POD_FAILED
            return "restarted in" if later else "replaced"
        case Try():
            return "tried"
        case Patch(reason=reason):
            return "updated" if reason != reasons.POD_KEPT else "kept"
        case Delete():
            return "deleted"
