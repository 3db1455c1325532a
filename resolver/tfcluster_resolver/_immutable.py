"""Values that nobody can change, however deep their mappings are nested; they can be pickled and copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any


class Immutable:
    """A base for frozen dataclasses: their mappings are copied and made read-only."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]  # what derives from this is a dataclass
            object.__setattr__(self, one.name, _frozen(getattr(self, one.name)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by plain dictionaries, because read-only mappings cannot be."""
        return type(self), tuple(_plain(getattr(self, one.name)) for one in fields(self))  # type: ignore[arg-type]  # likewise


def _frozen(value: Any) -> Any:
    if not isinstance(value, Mapping) or isinstance(value, MappingProxyType):
        return value
    return MappingProxyType({key: _frozen(one) for key, one in value.items()})


def _plain(value: Any) -> Any:
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value
