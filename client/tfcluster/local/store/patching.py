"""JSON merge patches (RFC 7386) that share what they leave alone, and JSON patches (RFC 6902)."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfcluster.local.store import refusals


def merge_patch(target: Any, change: Any) -> Any:
    """Apply a merge patch."""
    if not isinstance(change, Mapping):
        return change
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = merge_patch(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def json_patch(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Apply a JSON patch with the operations add, replace, remove and test."""
    for operation in operations:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation.get("path", "").split("/")[1:]]
        try:
            target = _step(target, steps, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            why = f"the server rejected our request due to an error in our request ({operation.get('path')}: {error})"
            raise refusals.Refusal(422, "Invalid", why) from error
    return target


def _step(target: Any, steps: list[str], operation: Mapping[str, Any]) -> Any:
    if not steps:
        if operation["op"] == "test" and target != operation["value"]:
            raise ValueError("testing value failed")
        return target if operation["op"] == "test" else operation["value"]
    head, rest = steps[0], steps[1:]
    copied = list(target) if isinstance(target, list) else dict(target)
    key: Any = (len(copied) if head == "-" else int(head)) if isinstance(copied, list) else head
    if rest or operation["op"] == "test":
        copied[key] = _step(copied[key], rest, operation)
    elif operation["op"] == "remove":
        del copied[key]
    elif operation["op"] == "add" and isinstance(copied, list):
        copied.insert(key, operation["value"])
    elif operation["op"] in ("add", "replace"):
        if operation["op"] == "replace":
            copied[key]  # raises KeyError: what is replaced must be there
        copied[key] = operation["value"]
    else:
        raise ValueError(f"unexpected kind: {operation['op']}")
    return copied
