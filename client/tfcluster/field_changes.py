"""Which fields of an object an edit changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfcluster.rules import Where


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs.

    Attributes:
        path: where, such as ``spec.jobs.worker.template.spec.containers[tensorflow].image``.
        before: its value; None where there was none.
        after: its value; None where there is none any more.
        where: the same as steps in the new object, of which the last ones may be missing there.
    """

    path: str
    before: Any
    after: Any
    where: Where


def changes(before: Any, after: Any, path: str = "", where: Where = ()) -> Iterator[FieldChange]:
    """Compare two values.

    Yields:
        The innermost fields that differ; entries of lists that have names are told apart by these.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from changes(before.get(key), after.get(key), inner, (*where, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _in_lists(before, after, path, where)
    elif before != after:
        yield FieldChange(path, before, after, where)


def _in_lists(before: Sequence[Any], after: Sequence[Any], path: str, where: Where) -> Iterator[FieldChange]:
    if not all(isinstance(one, Mapping) and "name" in one for one in (*before, *after)):
        if len(before) != len(after):
            if list(before) != list(after):
                yield FieldChange(path, list(before), list(after), where)
            return
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from changes(one, other, f"{path}[{index}]", (*where, index))
        return
    old, new = ({one["name"]: one for one in of} for of in (before, after))
    places = {one["name"]: index for index, one in enumerate(after)}
    for name in [*old, *(name for name in new if name not in old)]:
        yield from changes(old.get(name), new.get(name), f"{path}[{name}]", (*where, places.get(name, 0)))
