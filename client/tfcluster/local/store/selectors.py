"""Label and field selectors, as list, watch and collection deletes take them."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from tfcluster.local.store import refusals

Object = dict[str, Any]
Labels = Mapping[str, str]
_Test = Callable[[Labels], bool]

_SET: Final = re.compile(r"^(?P<key>[^\s!=,()]+)\s+(?P<how>in|notin)\s+\((?P<values>[^()]*)\)$")
_EQUALITY: Final = re.compile(r"^(?P<key>[^\s!=,()]+)\s*(?P<how>==|=|!=)\s*(?P<value>[^\s!=,()]*)$")
_EXISTS: Final = re.compile(r"^(?P<absent>!?)\s*(?P<key>[^\s!=,()]+)$")
#: A comma that is not between parentheses.
_COMMA: Final = re.compile(r",(?![^()]*\))")


def everything(_object: Object) -> bool:
    """Match every object."""
    return True


@lru_cache(maxsize=256)
def selector_of(labels: str, fields: str) -> Callable[[Object], bool]:
    """Read the two selectors of a request."""
    tests = [_label_test(part.strip()) for part in _COMMA.split(labels) if part.strip()]
    wanted = [_field(part.strip()) for part in fields.split(",") if part.strip()]
    if not tests and not wanted:
        return everything

    def matches(body: Object) -> bool:
        metadata = body["metadata"]
        if any((metadata.get(field, "") == value) is not equal for field, value, equal in wanted):
            return False
        found = metadata.get("labels") or {}
        return all(test(found) for test in tests)

    return matches


def _label_test(text: str) -> _Test:
    if found := _SET.match(text):
        key, values = found["key"], frozenset(value.strip() for value in found["values"].split(","))
        if found["how"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALITY.match(text):
        key, value = found["key"], found["value"]
        if found["how"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(text):
        key = found["key"]
        return (lambda labels: key not in labels) if found["absent"] else (lambda labels: key in labels)
    raise refusals.bad_request(f"unable to parse requirement: {text}")


def _field(text: str) -> tuple[str, str, bool]:
    found = _EQUALITY.match(text)
    if found is None:
        raise refusals.bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    if found["key"] not in ("metadata.name", "metadata.namespace"):
        raise refusals.bad_request(f"field label not supported: {found['key']}")
    return found["key"].removeprefix("metadata."), found["value"], found["how"] != "!="
