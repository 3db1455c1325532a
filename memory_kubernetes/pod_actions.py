"""What is done to a pod rather than written: binding it to a node, and evicting it."""

from __future__ import annotations

from typing import Any

from memory_kubernetes import refusals
from memory_kubernetes.core import Actor, Core
from memory_kubernetes.deleting import DeleteOptions, delete
from memory_kubernetes.state import Storage, Version

Object = dict[str, Any]


def bind(core: Core, storage: Storage, version: Version, node: str) -> Version:
    """Give a pod its node, as a scheduler does.

    Raises:
        Refusal: 409, the pod has a node or is being deleted.
    """
    body = version.body
    name = body["metadata"]["name"]
    if body["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{body["spec"]["nodeName"]}"'
        raise _unbindable(name, why)
    if "deletionTimestamp" in body["metadata"]:
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    spec = {**body["spec"], "nodeName": node}
    status = with_condition(core, body["status"], kind="PodScheduled", status="True")
    bound = {**body, "metadata": {**body["metadata"]}, "spec": spec, "status": status}
    return core.state.commit(storage, "MODIFIED", bound, version)


def _unbindable(name: str, why: str) -> refusals.Refusal:
    message = f"Operation cannot be fulfilled on pods/binding {refusals.quoted(name)}: {why}"
    return refusals.Refusal(409, "Conflict", message, details={"name": name, "kind": "pods/binding"})


def evict(core: Core, storage: Storage, version: Version, options: DeleteOptions, actor: Actor) -> None:
    """Evict a pod: say in its conditions that it is disrupted, and delete it.

    Raises:
        Refusal: 403 or 409.
    """
    body = version.body
    if body["status"].get("phase") not in ("Succeeded", "Failed") and "deletionTimestamp" not in body["metadata"]:
        status = with_condition(
            core,
            body["status"],
            kind="DisruptionTarget",
            status="True",
            reason="EvictionByEvictionAPI",
            message="Eviction API: evicting",
        )
        marked = {**body, "metadata": {**body["metadata"]}, "status": status}
        version = core.state.commit(storage, "MODIFIED", marked, version)
    delete(core, storage, version, options, actor)


def with_condition(core: Core, known: Object, /, *, kind: str, **fields: str) -> Object:
    """Give a status with one condition set, now."""
    others = [one for one in known.get("conditions") or () if one["type"] != kind]
    return {**known, "conditions": [*others, {"type": kind, **fields, "lastTransitionTime": core.timestamp()}]}
