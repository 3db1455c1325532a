"""Admission: hooks that can change or reject a write, and the quota of a namespace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tfcluster.local.store import refusals
from tfcluster.local.store.resources import Resource
from tfcluster.local.store.state import State

Object = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Admission:
    """A write before it is stored; a hook can change ``object`` (None for a delete, as ``old`` for a create)."""

    verb: str
    resource: str
    namespace: str
    user: str
    subresource: str
    old: Object | None
    object: Object | None
    dry_run: bool = False


AdmissionHook = Callable[[Admission], None]


def check_quota(state: State, resource: Resource, body: Object, limits: Mapping[str, int]) -> None:
    """Reject a new object that exceeds the quota of its namespace."""
    metadata = body["metadata"]
    versions = state.storages[resource.plural].objects.get(metadata["namespace"], {})
    over: list[tuple[str, int, int]] = []
    for key in sorted({resource.plural, f"count/{resource.group_resource}"} & set(limits)):
        if resource.group and key == resource.plural:
            continue
        if key == "pods":  # a pod that has ended frees its quota, a terminating one does not
            used = sum(one.body["status"].get("phase") not in ("Succeeded", "Failed") for one in versions.values())
        else:
            used = len(versions)
        if used + 1 > limits[key]:
            over.append((key, used, limits[key]))
    if over:
        requested = ",".join(f"{key}=1" for key, _, _ in over)
        used_up = ",".join(f"{key}={used}" for key, used, _ in over)
        limited = ",".join(f"{key}={limit}" for key, _, limit in over)
        why = f"exceeded quota: quota, requested: {requested}, used: {used_up}, limited: {limited}"
        raise refusals.forbidden(resource, metadata["name"], why)
