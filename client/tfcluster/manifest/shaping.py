"""Walk over an object, or apply a CRD's structural schema to it: set defaults, and drop unknown fields."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]

_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
#: The fields of every object, which a schema does not have to declare.
_OF_EVERY_OBJECT: Final = ("kind", "apiVersion", "metadata")


def shape(schema: Schema, body: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: body[key] for key in _OF_EVERY_OBJECT if key in body}
    shaped = _shape(schema, {key: value for key, value in body.items() if key not in kept})
    return {**kept, **{key: value for key, value in shaped.items() if key not in kept}}


def _shape(schema: Schema, value: Any) -> Any:
    if isinstance(value, dict):
        return _shape_object(schema, value)
    if isinstance(value, list) and (items := schema.get("items")):
        return [_shape(items, one) for one in value]
    return value


def _shape_object(schema: Schema, value: dict[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    embedded = _OF_EVERY_OBJECT if schema.get("x-kubernetes-embedded-resource") else ()
    shaped = {}
    for key, one in value.items():
        if key in properties:
            if one is not None or properties[key].get(
                "nullable"
            ):  # A null that the schema does not permit is dropped, and gets the default
                shaped[key] = _shape(properties[key], one)
        elif isinstance(others, Mapping):
            shaped[key] = _shape(others, one)
        elif others or schema.get(_PRESERVES) or key in embedded:
            shaped[key] = one
    for key, inner in properties.items():
        if key not in shaped and "default" in inner:
            shaped[key] = _shape(inner, inner["default"])
    return shaped


def nodes(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Return a part of an object and everything below it, each with its path."""
    yield path, node
    inner: Iterable[tuple[str | int, Any]] = node.items() if isinstance(node, Mapping) else ()
    for key, value in enumerate(node) if isinstance(node, list) else inner:
        yield from nodes(value, (*path, key))
