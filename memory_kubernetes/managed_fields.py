"""managedFields, as far as they tell who wrote a container's image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Object = dict[str, Any]

_KINDS: Final = ("containers", "initContainers")


def at_creation(body: Object, manager: str, now: str) -> list[Object]:
    """Give the managedFields of a new pod: whoever creates it manages all images.

    Args:
        body: the pod.
        manager: who creates it.
        now: the time, as the API spells it.

    Returns:
        The entries.
    """
    owned = [path for path, _ in _images(body)]
    return [_entry(manager, now, owned)] if owned else []


def after_update(old: Object, new: Object, manager: str, now: str) -> list[Object] | None:
    """Give the managedFields of a changed pod: who changes an image takes it over.

    Args:
        old: the pod before.
        new: the pod after.
        manager: who changes it.
        now: the time, as the API spells it.

    Returns:
        The entries, or None where no image changed.
    """
    if old["spec"] is new["spec"]:
        return None
    before = dict(_images(old))
    changed = [path for path, image in _images(new) if before.get(path) != image]
    if not changed:
        return None
    owners = {entry["manager"]: _paths(entry) for entry in old["metadata"].get("managedFields") or ()}
    for paths in owners.values():
        paths[:] = [path for path in paths if path not in changed]
    owners.setdefault(manager, []).extend(changed)
    return [_entry(who, now, paths) for who, paths in owners.items() if paths]


def _images(body: Object) -> Iterable[tuple[tuple[str, str], str]]:
    spec = body.get("spec") or {}
    for kind in _KINDS:
        for container in spec.get(kind) or ():
            yield (kind, container.get("name", "")), container.get("image", "")


def _entry(manager: str, now: str, paths: Iterable[tuple[str, str]]) -> Object:
    fields: Object = {}
    for kind, name in paths:
        fields.setdefault(f"f:{kind}", {})[f'k:{{"name":"{name}"}}'] = {".": {}, "f:image": {}, "f:name": {}}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": fields},
    }


def _paths(entry: Object) -> list[tuple[str, str]]:
    return [
        (kind.removeprefix("f:"), key.removeprefix('k:{"name":"').removesuffix('"}'))
        for kind, containers in entry["fieldsV1"].get("f:spec", {}).items()
        for key in containers
    ]
