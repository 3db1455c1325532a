"""The first field in which a pod differs from what its template would make of it now, for people to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tfcluster_operator.model import naming
from tfcluster_operator.model.quantities import quantity

#: Lists whose entries have names, and where an entry that nobody declared was taken out of the template.
_NAMED_LISTS: Final = ("containers", "initContainers", "env", "volumes", "ports")
#: What the API server and its admission plugins add to a pod's volumes.
_ADDED_VOLUMES: Final = "kube-api-access-"


def first_difference(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> str:
    """Name the first field that an edit of the template changed.

    Args:
        wanted: the pod as it would be made now.
        live: the pod as it was made, with what the API server filled in.

    Returns:
        A path such as ``containers[tensorflow].image``, or ``scheduling.colocate`` where it is of the TFCluster's spec;
        ``template`` where what differs is a field that was taken out and that the API server has a default for.
    """
    for field, rules_of in _PLACES.items():
        if rules_of(wanted) != rules_of(live):
            return field
    for group in ("labels", "annotations"):
        told = {k: v for k, v in (wanted["metadata"].get(group) or {}).items() if f"{naming.GROUP}/" not in k}
        for path in _differences(told, live["metadata"].get(group) or {}, f"metadata.{group}"):
            return path
    return next(_differences(wanted["spec"], live.get("spec") or {}, ""), "template")


def _colocated(pod: Mapping[str, Any]) -> Any:
    return (pod["metadata"].get("labels") or {}).get(naming.LABEL_COLOCATED)


def _spread(pod: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Give the rules by which a pod's job is spread: those that select the job as the operator does."""
    labels = pod["metadata"].get("labels") or {}
    selector = {"matchLabels": {key: labels.get(key) for key in (naming.LABEL_CLUSTER, naming.LABEL_JOB)}}
    rules = (pod.get("spec") or {}).get("topologySpreadConstraints") or ()
    ours = [one for one in rules if one.get("labelSelector") == selector]
    return [tuple(one.get(key) for key in ("topologyKey", "maxSkew", "whenUnsatisfiable")) for one in ours]


#: The fields of spec.scheduling that a pod is made from, and what of a pod tells them.
_PLACES: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "scheduling.colocate": _colocated,
    "scheduling.spread": _spread,
}


def _differences(wanted: Any, live: Any, path: str) -> Iterator[str]:
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for key, value in wanted.items():
            where = f"{path}.{key}" if path else key
            if key not in live:
                if value not in ({}, [], None, False, ""):
                    yield where
            elif isinstance(value, list) and isinstance(live[key], list):
                yield from _in_lists(value, live[key], where)
            else:
                yield from _differences(value, live[key], where)
    elif str(wanted) != str(live) and not _same_quantity(wanted, live):
        yield path


def _in_lists(wanted: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[str]:
    if not all(isinstance(one, Mapping) and "name" in one for one in (*wanted, *live)):
        if len(wanted) > len(live):
            yield path
        for index, (one, other) in enumerate(zip(wanted, live, strict=False)):
            yield from _differences(one, other, f"{path}[{index}]")
        return
    known = {one["name"]: one for one in live}
    for one in wanted:
        where = f"{path}[{one['name']}]"
        if one["name"] not in known:
            yield where
        else:
            yield from _differences(one, known[one["name"]], where)
    if path.rpartition(".")[2] in _NAMED_LISTS:
        declared = {one["name"] for one in wanted}
        for name in known:
            if name not in declared and not name.startswith(_ADDED_VOLUMES):
                yield f"{path}[{name}]"


def _same_quantity(wanted: Any, live: Any) -> bool:
    """Tell whether two spellings mean one quantity: the API server writes 1000m as 1 and 1024Mi as 1Gi."""
    return (mine := quantity(wanted)) is not None and mine == quantity(live)
