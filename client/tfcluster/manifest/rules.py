"""The rules of the CRD (``x-kubernetes-validations``): CEL, evaluated by common-expression-language.

The functions that Kubernetes and cel-go add to CEL are here as far as the CRD uses them (kubernetes.io, "Common
Expression Language in Kubernetes").
"""

import ipaddress
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final

# The package imports its own command line, which takes ten times as long as the rest.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
import cel  # noqa: E402 - after the line above

Schema = Mapping[str, Any]
#: The place of a value: keys and indices from the root.
Where = tuple[str | int, ...]


def broken(
    schema: Schema, value: Any, old: Any, malformed: Collection[Where], where: Where = ()
) -> Iterator[tuple[Where, str]]:
    if where not in malformed:
        for rule in schema.get("x-kubernetes-validations") or ():
            if (words := _judge_rule(rule, value, old)) is not None:
                yield (*where, *re.findall(r"\w+", rule.get("fieldPath", ""))), words
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for key, inner in value.items():
            of_key = properties.get(key, others)
            if isinstance(of_key, Mapping):
                was = old.get(key) if isinstance(old, dict) else None
                yield from broken(of_key, inner, was, malformed, (*where, key))
    elif isinstance(value, list) and (items := schema.get("items")):
        for index, inner in enumerate(value):
            yield from broken(items, inner, None, malformed, (*where, index))


def _judge_rule(rule: Mapping[str, str], value: Any, old: Any) -> str | None:
    """Return the message of a rule that is violated; None if it holds or cannot be evaluated here."""
    if old is None and "oldSelf" in rule["rule"]:
        return None
    try:
        known = cel.Context({"self": value, "oldSelf": old}, _FUNCTIONS)
        if _program(rule["rule"]).execute(known):
            return None
    except _ERRORS:
        return None  # the API server will judge it
    try:
        return str(_program(rule["messageExpression"]).execute(known))
    except _ERRORS:
        return rule["message"]


_program: Final = cache(cel.compile)
#: Missing fields, values of other types, numbers beyond 64 bits.
_ERRORS: Final = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


def _is_cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _cel_format(text: str, values: list[Any]) -> str:
    left = iter(values)
    return re.sub("%[sd]", lambda _: str(next(left)), text)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "format": _cel_format,
    "isCIDR": _is_cidr,
    "join": lambda texts, by: by.join(texts),
    "max": max,
    "replace": str.replace,
    "split": str.split,
    "substring": lambda text, start: text[start:],
    "sum": sum,
}
