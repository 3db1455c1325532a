"""Awaiting a condition of the world: poll tightly, give up at a deadline, and show the last state seen.

It decides how a test waits; a deadline here is only a guard against hanging, never an assertion about speed.
"""

from __future__ import annotations

from collections.abc import Callable
from pprint import pformat
from typing import TypeVar

from . import clock

State = TypeVar("State")

#: Seconds until a wait is given up, wherever a test waits: far above what a healthy system needs on a busy machine.
GUARD = 120.0
_POLL_SECONDS = 0.05


def eventually(
    probe: Callable[[], State],
    accept: Callable[[State], object] = bool,
    *,
    what: str,
    within: float = GUARD,
) -> State:
    """Read a state again and again until it is accepted.

    Args:
        probe: reads the state of the world.
        accept: says by a true value that the state is the one awaited; an AssertionError counts as "not yet".
        what: the fact awaited, for the error.
        within: seconds until the wait is given up.

    Raises:
        AssertionError: the deadline passed; the message holds the last state.
    """
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
    """Keep how a long text begins and, more of it, how it ends: a log tells there what it lacks."""
    begin, end = 1000, 2000
    return text if len(text) <= begin + end else f"{text[:begin]}\n[...]\n{text[-end:]}"


def _without_managers(state: object) -> object:
    """Give a state without who wrote which field: that is most of an object, and never what is looked for."""
    match state:
        case dict():
            return {key: _without_managers(value) for key, value in state.items() if key != "managedFields"}
        case list():
            return [_without_managers(value) for value in state]
        case _:
            return state
