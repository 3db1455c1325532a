"""Between Python's names and the API's: ``max_replicas`` in a dataclass is ``maxReplicas`` in a manifest."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

#: What the metadata of a dataclass's field says: where its value stands, as keys; which dataclass it is made of, and
#: whether it is a list of such; and whether it is a mapping by index, as the API has no keys but texts.
PATH: Final = "path"
MADE_OF: Final = "made of"
LISTED: Final = "listed"
BY_INDEX: Final = "by index"


def camel(name: str) -> str:
    """Spell a name as the API does."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def paths_of(kind: type[Any]) -> Mapping[str, tuple[str, ...]]:
    """Give where the value of each field of a dataclass stands in the API's object; () where it stands nowhere."""
    return {one.name: tuple(one.metadata.get(PATH, (camel(one.name),))) for one in dataclasses.fields(kind)}


def to_api(value: Any) -> dict[str, Any]:
    """Give the API's object of a dataclass; fields that are None are left out."""
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


def from_api(kind: type[_T], body: Any, where: str, problems: list[str], **given: Any) -> _T:
    """Make a dataclass of the API's object."""
    if not isinstance(body, Mapping):
        problems.append(f"{where}: write an object")
        body = {}
    rest = copy.deepcopy(dict(body))
    values = dict(given)
    for one in dataclasses.fields(kind):  # type: ignore[arg-type]  # every kind here is a dataclass
        path = () if one.name in given else paths_of(kind)[one.name]
        found = _take(rest, path) if path else None
        if found is None:
            continue
        inner = one.metadata.get(MADE_OF)
        if inner is not None and one.metadata.get(LISTED):
            if not isinstance(found, list):
                problems.append(f"{'.'.join([where, *path])}: write a list")
                continue
            there = ".".join([where, *path])
            found = [from_api(inner, element, f"{there}[{index}]", problems) for index, element in enumerate(found)]
        elif inner is not None:
            found = from_api(inner, found, ".".join([where, *path]), problems)
        elif one.metadata.get(BY_INDEX) and isinstance(found, Mapping):
            found = {int(key) if str(key).isdecimal() else key: value for key, value in found.items()}
        values[one.name] = found
    problems += [f"{where}.{path}: the client of this version does not know this field" for path in _leaves(rest)]
    return kind(**values)


def spelt(value: Any) -> Any:
    """Give a value as JSON has it: dataclasses and mappings become dicts, sequences lists; all are copies."""
    if dataclasses.is_dataclass(value):
        return to_api(value)
    if isinstance(value, Mapping):
        return {str(key): spelt(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [spelt(inner) for inner in value]
    return value


def _take(body: dict[str, Any], path: Sequence[str]) -> Any:
    """Take a value out of an object."""
    *around, last = path
    for key in around:
        inner = body.get(key)
        if not isinstance(inner, dict):
            return None
        body = inner
    return body.pop(last, None)


def _leaves(body: Mapping[str, Any]) -> Iterator[str]:
    """Name what is left; an object that was emptied is not."""
    for key, value in body.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in _leaves(value))
        elif value is not None:
            yield str(key)
