"""managedFields, as far as they tell who wrote a container's image."""

from __future__ import annotations

import copy
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
    fields: Object = {}
    for kind, name in dict(_images(body)):
        fields.setdefault(f"f:{kind}", {})[_key(name)] = {".": {}, "f:image": {}, "f:name": {}}
    return [_entry(manager, now, fields)] if fields else []


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
    entries = {
        entry["manager"]: copy.deepcopy(entry["fieldsV1"]["f:spec"])
        for entry in old["metadata"].get("managedFields") or ()
    }
    for kind, name in changed:
        for fields in entries.values():
            fields.get(f"f:{kind}", {}).get(_key(name), {}).pop("f:image", None)
        of_kind = entries.setdefault(manager, {}).setdefault(f"f:{kind}", {})
        of_kind.setdefault(_key(name), {})["f:image"] = {}
    return [_entry(who, now, fields) for who, fields in entries.items()]


def _images(body: Object) -> Iterable[tuple[tuple[str, str], str]]:
    spec = body.get("spec") or {}
    for kind in _KINDS:
        for container in spec.get(kind) or ():
            yield (kind, container.get("name", "")), container.get("image", "")


def _key(name: str) -> str:
    return f'k:{{"name":"{name}"}}'


def _entry(manager: str, now: str, fields: Object) -> Object:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": fields},
    }
