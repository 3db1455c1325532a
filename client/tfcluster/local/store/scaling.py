"""The scale subresource of a kind: a view of three of its fields."""

from typing import Any

from tfcluster.local.store import refusals
from tfcluster.local.store.resources import Resource, Scale
from tfcluster.local.store.state import Version

Object = dict[str, Any]


def read_scale(resource: Resource, version: Version) -> Object:
    """Return an object's Scale."""
    scale = _scale_of(resource)
    body = version.body
    replicas = _get(body, scale.spec)
    if replicas is None:
        raise refusals.internal_error(f'the spec replicas field ".{scale.spec}" does not exist')
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": _get(body, scale.status) or 0}
    if selector := _get(body, scale.selector):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: body["metadata"][key] for key in kept if key in body["metadata"]},
        "spec": {"replicas": replicas},
        "status": status,
    }


def with_scale(resource: Resource, body: Object, scale: Object) -> Object:
    """Return an object with the replicas, UID and version that a Scale asks for."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    changed = _set(body, _scale_of(resource).spec.split("."), replicas)
    asked = scale.get("metadata") or {}
    named = {key: asked[key] for key in ("uid", "resourceVersion") if asked.get(key)}
    return {**changed, "metadata": {**body["metadata"], **named}}


def _scale_of(resource: Resource) -> Scale:
    if resource.scale is None:
        raise refusals.NotServed
    return resource.scale


def _get(body: Any, path: str) -> Any:
    for step in path.split("."):
        body = body.get(step) if isinstance(body, dict) else None
    return body


def _set(body: Any, path: list[str], value: Any) -> Object:
    head, rest = path[0], path[1:]
    inner = body if isinstance(body, dict) else {}
    return {**inner, head: _set(inner.get(head), rest, value) if rest else value}
