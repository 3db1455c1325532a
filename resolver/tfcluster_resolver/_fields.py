"""Fields of a JSON document: each reader gives the value, or an error that names its place and what was expected there.

``where`` is the place of the value, as the message spells it.  Numbers and texts are bounded here, so that nobody who
reads a view needs to mistrust them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

#: TensorFlow keeps a task's index in 32 bits (``JobDef.tasks``).
_LARGEST_INDEX: Final = 2**31 - 1
#: Kubernetes counts in 64 bits.
_LARGEST_COUNT: Final = 2**63 - 1

_T = TypeVar("_T")
_Reader = Callable[[Any, str], _T]


class ContractError(ValueError):
    """The text is not a view: the message names the place in it and what was expected there."""


def text(value: Any, where: str) -> str:
    """Read a string."""
    if not isinstance(value, str):
        raise ContractError(f"{where} must be a string, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        # NB: JSON can spell half a character, which no file, no log line and no RPC takes.
        raise ContractError(f"{where} must be Unicode, not {value!r}") from None
    return value


def count(value: Any, where: str) -> int:
    """Read a whole number of 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ContractError(f"{where} must be a whole number of 0 or more, not {value!r}")
    if value > _LARGEST_COUNT:
        raise ContractError(f"{where} must be {_LARGEST_COUNT} at most, not {value!r}")
    return value


def span(value: Any, where: str) -> tuple[int, int]:
    """Read a range of task indices, [start, stop)."""
    match each(count)(value, where):
        case (start, stop) if start <= stop <= _LARGEST_INDEX + 1:
            return start, stop
    raise ContractError(f"{where} must be [start, stop], not {value!r}")


def mapping(value: Any, where: str) -> dict[str, Any]:
    """Read an object whose values are still to be read."""
    if not isinstance(value, dict):
        raise ContractError(f"{where} must be an object, not {type(value).__name__}")
    for key in value:
        text(key, f"the key {key!r} of {where}")
    return value


def each(read: _Reader[_T]) -> _Reader[tuple[_T, ...]]:
    """Make a reader of lists from the reader of one item."""

    def reader(value: Any, where: str) -> tuple[_T, ...]:
        if not isinstance(value, list):
            raise ContractError(f"{where} must be a list, not {type(value).__name__}")
        return tuple(read(one, f"{where}[{i}]") for i, one in enumerate(value))

    return reader


def by_name(read: _Reader[_T]) -> _Reader[dict[str, _T]]:
    """Make a reader of objects from the reader of one value."""

    def reader(value: Any, where: str) -> dict[str, _T]:
        return {name: read(one, f"{where}.{name}") for name, one in mapping(value, where).items()}

    return reader


def by_index(read: _Reader[_T]) -> _Reader[dict[int, _T]]:
    """Make a reader of objects whose keys are task indices from the reader of one value."""

    def reader(value: Any, where: str) -> dict[int, _T]:
        return {_index(key, where): read(one, f"{where}.{key}") for key, one in mapping(value, where).items()}

    return reader


def _index(key: str, where: str) -> int:
    # NB: one spelling for each index, so that no two keys mean one task; int() refuses more than some 4,000 digits.
    if not (key.isascii() and key.isdigit() and len(key) < 12 and key == str(int(key)) and int(key) <= _LARGEST_INDEX):
        raise ContractError(f"{where} has the key {key!r}, which is not a task index")
    return int(key)
