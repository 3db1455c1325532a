"""The oracle of metrics: when the world is quiet, the leader's metrics must agree with the API server."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from simulation.world import World
from support.memory_kubernetes import Refusal

_ROLES = ("chief", "master", "worker", "ps", "evaluator")


def differences(world: World) -> list[str]:
    """Return the differences between the leader's gauges and the objects of the API server."""
    leader = world.acting()
    if leader.engine is None or not leader.leads:
        return []
    clusters, figures = list(_clusters(world)), leader.engine.figures()
    found = []

    def compare(what: str, told: Any, true: Any) -> None:
        if told != true:
            found.append(f"{what} are {told} where the API server says {true}")

    compare("conditions", figures.conditions, Counter(_conditions(clusters)))
    compare("unready clusters", sum(figures.not_ready.values()), sum(map(_awaited, clusters)))
    ready = ((of, count) for of, count in figures.tasks.items() if of[1] == "ready")
    compare("ready tasks", _by_role(ready), _by_role(_ready(clusters)))
    compare("overdue passes", figures.queue_depth, 0)
    return found


def _clusters(world: World) -> Iterator[dict[str, Any]]:
    try:
        found = world.kube.list("tfclusters")
    except Refusal:  # the CRD is not installed
        return
    for one in found:
        watched = not world.namespaces or one["metadata"]["namespace"] in world.namespaces
        if watched and one["spec"].get("managedBy") is None:
            yield one


def _condition(cluster: dict[str, Any], kind: str) -> str:
    conditions = (cluster.get("status") or {}).get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == kind), "Unknown")


def _conditions(clusters: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    ours = ("Ready", "Suspended", "Succeeded", "Failed", "Stalled", "MembershipPublished", "UpToDate", "NameConflict")
    return ((kind, _condition(cluster, kind)) for cluster in clusters for kind in ours)


def _awaited(cluster: dict[str, Any]) -> bool:
    """Return whether a cluster should be ready but is not."""
    over = "True" in {_condition(cluster, kind) for kind in ("Ready", "Succeeded", "Failed")}
    return not over and not cluster["spec"].get("suspend") and "deletionTimestamp" not in cluster["metadata"]


def _ready(clusters: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, ...], int]]:
    # The oracle of lies compares a cluster's status with its pods.
    return (
        ((job,), of["ready"])
        for cluster in clusters
        for job, of in (cluster.get("status") or {}).get("jobs", {}).items()
    )


def _by_role(counts: Any) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (job, *_), count in counts:
        found[job if job in _ROLES else "other"] += count
    return {role: count for role, count in found.items() if count}
