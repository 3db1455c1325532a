"""Between dataclasses and the API: ``max_replicas`` is ``maxReplicas`` in a manifest; types are checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tfcluster.errors import ManifestError

#: The key in the metadata of a dataclass's field: the path of its value in the API's object.
PATH: Final = "path"


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def paths_of(kind: type[Any]) -> Mapping[str, tuple[str, ...]]:
    """Return the path of each field of a dataclass in the API's object; () if it does not have one."""
    return {one.name: tuple(one.metadata.get(PATH, (camel(one.name),))) for one in dataclasses.fields(kind)}


def to_api(value: Any) -> dict[str, Any]:
    """Return the API's object of a dataclass, without unset fields."""
    found: dict[str, Any] = {}
    for name, path in paths_of(type(value)).items():
        inner = getattr(value, name)
        if inner is None or not path:
            continue
        place = found
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = spelt(inner)
    return found


def spelt(value: Any) -> Any:
    """Return a value as JSON types: dataclasses and mappings become dicts, sequences lists; all are copies."""
    if dataclasses.is_dataclass(value):
        return to_api(value)
    if isinstance(value, Mapping):
        return {str(key): spelt(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [spelt(inner) for inner in value]
    return value


def check(value: Any, kind: Any, what: str) -> Any:
    """Return a value of dicts and lists as a type; raises ManifestError with the first that has another type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ManifestError(f"{what}: {error}") from error
