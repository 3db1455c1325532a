"""Decisions over thousands of tasks, which pause now and then, so that others get a turn meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

_Result = TypeVar("_Result")

#: So many tasks are looked at between two pauses.
AT_ONCE: Final = 500

Turns = Generator[None, None, _Result]


def at_once(deciding: Turns[_Result]) -> _Result:
    """Decide without a pause."""
    while True:
        try:
            next(deciding)
        except StopIteration as over:
            result: _Result = over.value
            return result
