"""The rules of the CRD (``x-kubernetes-validations``): CEL, which cel-python evaluates.

It has the CEL extensions of Kubernetes that the CRD uses (kubernetes.io, "Common Expression Language in
Kubernetes").
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

Schema = Mapping[str, Any]
#: The place of a value: keys and indices from the root.
Where = tuple[str | int, ...]

_MOST_FILTERS: Final = 200


def broken(
    schema: Schema, body: Mapping[str, Any], old: Mapping[str, Any] | None, malformed: Collection[Where]
) -> Iterator[tuple[Where, str]]:
    try:
        new, was = json_to_cel(_without_many_filters(body)), None if old is None else json_to_cel({**old})
    except ValueError:
        return  # CEL does not support numbers beyond 64 bits; the schema check has already reported it
    yield from _broken_below(schema, new, was, (), malformed)


def _without_many_filters(body: Mapping[str, Any]) -> dict[str, Any]:
    """Empty the lists of taskDeviceFilters if they are many: each string takes milliseconds."""
    try:
        jobs: Mapping[str, Any] = body["spec"]["jobs"]
        many = sum(len(texts) for job in jobs.values() for texts in job.get("taskDeviceFilters", {}).values())
    except (KeyError, TypeError, AttributeError):
        return {**body}  # it does not fit the schema
    if many <= _MOST_FILTERS:
        return {**body}
    emptied = {
        name: {**job, "taskDeviceFilters": {key: [] for key in job.get("taskDeviceFilters", ())}}
        for name, job in jobs.items()
    }
    return {**body, "spec": {**body["spec"], "jobs": emptied}}


def _broken_below(
    schema: Schema, value: Any, old: Any, where: Where, malformed: Collection[Where]
) -> Iterator[tuple[Where, str]]:
    if where not in malformed:
        for rule in schema.get("x-kubernetes-validations") or ():
            if (words := _judge_rule(rule, value, old)) is not None:
                yield (*where, *re.findall(r"\w+", rule.get("fieldPath", ""))), words
    if isinstance(value, celtypes.MapType):
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for key, inner in value.items():
            of_key = properties.get(str(key), others)
            if isinstance(of_key, Mapping):
                was = old[key] if isinstance(old, celtypes.MapType) and key in old else None
                yield from _broken_below(of_key, inner, was, (*where, str(key)), malformed)
    elif isinstance(value, celtypes.ListType) and (items := schema.get("items")):
        for index, inner in enumerate(value):
            yield from _broken_below(items, inner, None, (*where, index), malformed)


def _judge_rule(rule: Mapping[str, str], value: Any, old: Any) -> str | None:
    """Return the message of a rule that is violated; None if it holds or cannot be evaluated here."""
    known = {"self": value, "oldSelf": old}
    if old is None:
        if "oldSelf" in rule["rule"]:
            return None
        del known["oldSelf"]
    try:
        if _program(rule["rule"]).evaluate(known):
            return None
    except CELEvalError:
        return None  # the API server will judge it
    try:
        return str(_program(rule["messageExpression"]).evaluate(known))
    except (KeyError, CELEvalError):
        return rule["message"]


_environment: Final = cache(celpy.Environment)


@cache
def _program(expression: str) -> celpy.Runner:
    return _environment().program(_environment().compile(expression), functions=dict(_FUNCTIONS))


def _is_cidr(text: str) -> celtypes.BoolType:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return celtypes.BoolType(False)
    return celtypes.BoolType("/" in text)


def _cel_format(text: str, values: celtypes.ListType) -> celtypes.StringType:
    left = iter(values)
    return celtypes.StringType(re.sub("%[sd]", lambda _: str(next(left)), text))


def _split(text: str, by: str) -> celtypes.ListType:
    return celtypes.ListType([celtypes.StringType(part) for part in text.split(by)])


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "format": _cel_format,
    "isCIDR": _is_cidr,
    "join": lambda texts, by: celtypes.StringType(by.join(texts)),
    "max": max,
    "replace": lambda text, old, new: celtypes.StringType(text.replace(old, new)),
    "split": _split,
    "substring": lambda text, start: celtypes.StringType(text[int(start) :]),
    "sum": lambda numbers: celtypes.IntType(sum(numbers)),
}
