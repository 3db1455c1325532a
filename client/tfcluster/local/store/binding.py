"""Binding a pod to a node."""

from typing import Any

from tfcluster.local.store import refusals
from tfcluster.local.store.core import Core
from tfcluster.local.store.state import Storage, Version

Object = dict[str, Any]


def bind(core: Core, storage: Storage, version: Version, node: str) -> Version:
    """Bind a pod to a node, as a scheduler does."""
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


def with_condition(core: Core, known: Object, /, *, kind: str, **fields: str) -> Object:
    """Return a status with one condition set now."""
    others = [one for one in known.get("conditions") or () if one["type"] != kind]
    return {**known, "conditions": [*others, {"type": kind, **fields, "lastTransitionTime": core.timestamp()}]}
