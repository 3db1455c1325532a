"""Decisions over thousands of tasks, as generators that yield now and then, so that other coroutines run in between."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

#: How many tasks are processed between two yields.
AT_ONCE: Final = 500

Turns = Generator[None, None, _Result]


def at_once(in_turns: Callable[_Arguments, Turns[_Result]]) -> Callable[_Arguments, _Result]:
    """Return a function with the same result that does not yield."""

    def decide(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        deciding = in_turns(*args, **kwargs)
        while True:
            try:
                next(deciding)
            except StopIteration as over:
                result: _Result = over.value
                return result

    return decide
