"""Verdicts: what became of one field of a TFJob, in words for its owner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

#: Where a value stands: the keys and indices that lead to it.
Path = tuple[str | int, ...]
_SHOWN: Final = 80


class Outcome(StrEnum):
    """What became of a field, the gravest first."""

    #: There is no TFCluster that means this.
    REFUSED = "refused"
    #: Something is lost, and the words say what to do.
    LOSSY = "lossy"
    #: Nothing is lost, and there is something to know.
    NOTED = "noted"
    #: It was left out of the TFJob; its default is written out, because ours is another.
    EXPLICIT = "explicit"
    #: It is left out, and meant nothing to TFJob or only to the API server.
    LEFT_OUT = "left out"
    #: It is carried over and means the same.
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one field.

    ``path`` is where it stands in the TFJob, empty for what TFJob has no field for; ``target`` is where it went, "" if
    nowhere; ``words`` say why, and what to do about it where something is to be done.
    """

    outcome: Outcome
    path: Path
    target: str = ""
    words: str = ""

    def __str__(self) -> str:
        where = " → ".join(part for part in (spelled(self.path), self.target) if part)
        return f"{where}: {self.words}" if self.words else where


@dataclass(slots=True)
class Findings:
    """The verdicts so far, and where nodes of the TFJob went."""

    verdicts: list[Verdict] = field(default_factory=list)
    moved: dict[Path, Path] = field(default_factory=dict)
    _judged: set[Path] = field(default_factory=set)

    def say(self, outcome: Outcome, path: Path, words: str = "", *, target: str = "") -> None:
        """Add the verdict for a node with all that is in it."""
        self._judged.add(path)
        self.verdicts.append(Verdict(outcome, path, target, words))

    def remark(self, outcome: Outcome, path: Path, words: str, *, target: str = "") -> None:
        """Add what is to be said about a node, whose parts have verdicts of their own."""
        self.verdicts.append(Verdict(outcome, path, target, words))

    def move(self, path: Path, target: Path, words: str = "", *, outcome: Outcome = Outcome.SAME) -> None:
        """Add the verdict for a node that went somewhere, with all that is in it."""
        self.moved[path] = target
        self.say(outcome, path, words, target=spelled(target))

    def judged(self, path: Path) -> bool:
        """Tell whether a node or one around it has a verdict."""
        return any(path[:length] in self._judged for length in range(1, len(path) + 1))


def spelled(path: Path) -> str:
    """Spell a path as ``kubectl explain`` does; keys that are no plain words are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").replace("-", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def said(value: Any) -> str:
    """Write a value of a manifest in short, as JSON has it."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Give every value that holds no others; what is empty or null holds none."""
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(node, Mapping):
        inner = node.items()
    elif isinstance(node, list):
        inner = enumerate(node)
    empty = True
    for key, value in inner:
        empty = False
        yield from leaves(value, (*path, key))
    if empty:
        yield path, node
