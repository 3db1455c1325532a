"""Reading the fields of a manifest: what cannot be read is noted with its path, and reading goes on.

Kubernetes takes null as absent, and so does every method here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

_LARGEST: Final = 2**31 - 1
#: How much of a wrong value, or of a path, a problem shows: a condition's message has a bound.
_SHOWN: Final = 80
_SHOWN_PATH: Final = 500


class Fields:
    """One object of a manifest.

    Args:
        raw: the object; anything else is noted as a problem and read as an empty one.
        path: where it stands, such as ``spec.jobs.worker``.
        problems: where problems are noted, one "path: what is wrong" each.
    """

    def __init__(self, raw: Any, path: str, problems: list[str]) -> None:
        self.path = path
        self._problems = problems
        self.raw: Mapping[str, Any] = {}
        if isinstance(raw, Mapping):
            self.raw = raw
        elif raw is not None:
            self._wrong("", "an object", raw)

    def problem(self, name: str, words: str) -> None:
        """Note what is wrong with a field; an empty name means the object itself."""
        self._problems.append(f"{self._path(name)[:_SHOWN_PATH]}: {words}")

    def inner(self, name: str) -> Fields:
        """Give the object in a field, an empty one where it is left out."""
        return Fields(self.raw.get(name), self._path(name), self._problems)

    def members(self) -> Iterator[tuple[str, Fields]]:
        """Give every field as an object: for maps, whose keys are the user's; a null among them is noted."""
        for name, value in self.raw.items():
            if value is None:
                self._wrong(name, "an object", value)
            else:
                yield name, self.inner(name)

    def elements(self, name: str) -> Iterator[Fields]:
        """Give the objects of the list in a field; a null among them is noted."""
        for index, value in enumerate(self.sequence(name)):
            where = f"{name}[{index}]"
            if value is None:
                self._wrong(where, "an object", value)
            else:
                yield Fields(value, self._path(where), self._problems)

    def sequence(self, name: str) -> Sequence[Any]:
        """Give the list in a field, an empty one where it is left out."""
        value = self.raw.get(name)
        if isinstance(value, list | tuple):
            return value
        if value is not None:
            self._wrong(name, "a list", value)
        return ()

    def texts(self, name: str) -> tuple[str, ...]:
        """Give the strings of the list in a field."""
        values = self.sequence(name)
        for value in values:
            if not isinstance(value, str):
                self._wrong(name, "a list of strings", value, holds=True)
        return tuple(value for value in values if isinstance(value, str))

    def text(self, name: str, default: str = "") -> str:
        """Give the string in a field."""
        value = self.raw.get(name)
        if isinstance(value, str):
            return value
        if value is not None:
            self._wrong(name, "a string", value)
        return default

    def flag(self, name: str, *, default: bool) -> bool:
        """Give the boolean in a field."""
        value = self.raw.get(name)
        if isinstance(value, bool):
            return value
        if value is not None:
            self._wrong(name, "true or false", value)
        return default

    def number(self, name: str, default: int, *, least: int = 0, most: int = _LARGEST) -> int:
        """Give the whole number in a field, from ``least`` to ``most``."""
        value = self.raw.get(name)
        if value is not None and is_whole(value) and least <= value <= most:
            return int(value)
        if value is not None:
            self._wrong(name, f"a whole number from {least} to {most}", value)
        return default

    def count(self, name: str) -> int | None:
        """Give the whole number in a field, None where it is left out."""
        return None if self.raw.get(name) is None else self.number(name, 0)

    def one_of(self, values: Any, name: str, default: str) -> Any:
        """Give the string in a field, which is one of those of a Literal type."""
        value = self.raw.get(name)
        if value is None:
            return default
        if value not in get_args(values):
            self._wrong(name, f"one of {', '.join(get_args(values))}", value)
            return default
        return value

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if name else self.path

    def _wrong(self, name: str, wanted: str, value: Any, *, holds: bool = False) -> None:
        self.problem(name, f"it must be {wanted}, and {'holds' if holds else 'is'} {shown(value)}")


def is_whole(value: Any) -> bool:
    """Tell whether a value of JSON is a whole number."""
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


def shown(value: Any) -> str:
    """Write a value in short, for people."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
