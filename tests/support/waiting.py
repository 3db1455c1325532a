"""Wait for a condition: poll often, give up at a deadline, and report the last state.

A deadline only guards against hanging; it never asserts speed.
"""

from collections.abc import Callable
from pprint import pformat
from typing import TypeVar

from . import clock

State = TypeVar("State")

#: Seconds until a wait gives up: far above what a healthy system needs on a busy machine.
GUARD = 120.0
_POLL_SECONDS = 0.05


def eventually(
    probe: Callable[[], State],
    accept: Callable[[State], object] = bool,
    *,
    what: str,
    within: float = GUARD,
) -> State:
    """Read a state until it is accepted; an AssertionError of ``accept`` counts as "not yet"."""
    end = clock.monotonic() + within
    while True:
        state = probe()
        refusal = ""
        try:
            if accept(state):
                return state
        except AssertionError as error:
            refusal = f"\nlast refusal: {error}"
        if clock.monotonic() >= end:
            raise AssertionError(
                f"within {within:g} s it never came true that {what}; last state:\n"
                f"{_shortened(pformat(_without_managers(state), width=140, compact=True))}{refusal}"
            )
        clock.sleep(_POLL_SECONDS)


def _shortened(text: str) -> str:
    """Keep the begin and, more of it, the end of a long text: the end of a log has the error."""
    begin, end = 1000, 2000
    return text if len(text) <= begin + end else f"{text[:begin]}\n[...]\n{text[-end:]}"


def _without_managers(state: object) -> object:
    """Return a state without managed fields, which are most of an object and never relevant here."""
    match state:
        case dict():
            return {key: _without_managers(value) for key, value in state.items() if key != "managedFields"}
        case list():
            return [_without_managers(value) for value in state]
        case _:
            return state
