"""Between dataclasses and the API: ``max_replicas`` is ``maxReplicas`` in a manifest; types are checked."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

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


#: The types of JSON, for a field of type Any.
_JSON: Final = (str, float, bool, type(None), Mapping, Sequence)
_NAMES: Final[Mapping[Any, str]] = {
    Any: "a value of JSON",
    Mapping: "a mapping",
    Sequence: "a list",
    bool: "True or False",
    float: "a number",
    int: "a whole number of at most 64 bits",
    str: "a text",
    type(None): "None",
}
_SHOWN: Final = 60


def misfits(value: Any, hint: Any, where: str = "") -> Iterator[str]:
    """Return the values whose type differs from the declared one."""
    if not any(_is(value, kind) for kind in _kinds(hint)):
        shown = repr(value)
        wanted = " or ".join(dict.fromkeys(map(_name, _kinds(hint))))
        yield f"{where}: this must be {wanted}, and is {shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}…'}"
    elif dataclasses.is_dataclass(value):
        hints = get_type_hints(type(value))
        for one in dataclasses.fields(value):
            yield from misfits(getattr(value, one.name), hints[one.name], f"{where}.{one.name}".removeprefix("."))
    elif isinstance(value, Mapping):
        of_keys, of_values = _inner(hint, Mapping)
        for key, inner in value.items():
            yield from misfits(key, of_keys, f"a key of {where}")
            yield from misfits(inner, of_values, f"{where}[{key!r}]")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, inner in enumerate(value):
            yield from misfits(inner, _inner(hint, Sequence)[0], f"{where}[{index}]")


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is(value: Any, kind: Any) -> bool:
    kind = get_origin(kind) or kind
    if kind is Any:
        return any(_is(value, one) for one in _JSON)
    if kind is Literal:  # A newer operator can have more values.
        return isinstance(value, str)
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, int):
        return kind in (int, float) and -(2**63) <= value < 2**63
    if isinstance(value, float):
        return kind is float and math.isfinite(value)
    return isinstance(value, kind) and not isinstance(value, bytes | bytearray)


def _inner(hint: Any, kind: Any) -> tuple[Any, ...]:
    """Return the types of a mapping's keys and values, or of a list's elements."""
    return next((get_args(one) for one in _kinds(hint) if get_origin(one) is kind), (Any, Any))


def _name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    kind = get_origin(kind) or kind
    return _NAMES.get(kind) or f"a {kind.__name__}"
