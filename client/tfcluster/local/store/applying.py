"""Server-side apply: fields that a manager no longer applies are removed, fields of other managers are kept.

Lists are atomic. Conflicts do not occur: a manager that applies a field takes it over.
"""

from collections.abc import Mapping
from typing import Any

from tfcluster.local.store import patching

Object = dict[str, Any]


def applied(stored: Object, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Object:
    """Compute an object after an apply."""
    result: Object = patching.merge_patch(stored, _removals(before, wanted))
    return _merged(result, wanted)


def _removals(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Object:
    gone: Object = {key: None for key in before if key not in wanted}
    for key, value in before.items():
        now = wanted.get(key)
        if isinstance(value, Mapping) and isinstance(now, Mapping) and (inner := _removals(value, now)):
            gone[key] = inner
    return gone


def _merged(stored: Any, wanted: Mapping[str, Any]) -> Object:
    merged = dict(stored) if isinstance(stored, Mapping) else {}
    for key, value in wanted.items():
        merged[key] = _merged(merged.get(key), value) if isinstance(value, Mapping) else value
    return merged
