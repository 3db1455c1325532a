"""Decisions over thousands of tasks, which pause now and then, so that others get a turn in the meantime."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

#: So many tasks are looked at between two pauses.
AT_ONCE: Final = 500

Turns = Generator[None, None, _Result]


def at_once(in_turns: Callable[_Arguments, Turns[_Result]]) -> Callable[_Arguments, _Result]:
    """Make the function that decides the same without a pause."""

    def decide(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        deciding = in_turns(*args, **kwargs)
        while True:
            try:
                next(deciding)
            except StopIteration as over:
                result: _Result = over.value
                return result

    return decide
