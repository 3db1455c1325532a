"""Text in columns and in wrapped lines, for terminals of any width and for pipes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_BETWEEN: Final = "   "
#: A column whose cells are sentences needs only so many cells before others make room for it.
_LEAST_OF_THE_LAST: Final = 24
#: No line is wrapped into less.
_NARROWEST: Final = 10


@dataclass(frozen=True, slots=True)
class Paper:
    """What is drawn on: ``width`` in cells, None where lines may have any length; ``fancy`` where it knows Unicode."""

    width: int | None = None
    fancy: bool = True


def wrap(text: Text, paper: Paper, indent: str = "") -> list[Text]:
    """Break a text into lines."""
    if paper.width is None:
        return [Text.assemble(indent, text)]
    width = max(_NARROWEST, paper.width - cell_len(indent))
    lines = text.wrap(Console(width=width), width)
    for line in lines:
        line.rstrip()
    return [Text.assemble(indent, line) for line in lines]


def columns(rows: Sequence[Sequence[Text] | Text], paper: Paper, *, can_go: Iterable[str] = ()) -> list[Text]:
    """Put cells below each other; where the paper is too narrow, columns go, and then lines are cut."""
    table = [list(row) for row in rows if not isinstance(row, Text)]
    used = [at for at in range(len(table[0])) if at == 0 or any(row[at].plain for row in table[1:])]
    going = list(can_go)
    while paper.width is not None and _needed(table, used) > paper.width and going:
        title = going.pop(0)
        used = [at for at in used if table[0][at].plain != title]
    widths = _widths(table, used)
    lines = []
    for row in rows:
        line = row.copy() if isinstance(row, Text) else _in_columns(row, used, widths)
        if paper.width is not None:
            line.truncate(paper.width, overflow="ellipsis" if paper.fancy else "crop")
        lines.append(line)
    return lines


def _in_columns(row: Sequence[Text], used: Sequence[int], widths: Sequence[int]) -> Text:
    line = Text()
    for at, width in zip(used, widths, strict=True):
        line.append_text(row[at])
        line.append(" " * (width - cell_len(row[at].plain)) + _BETWEEN)
    line.rstrip()
    return line


def _widths(table: Sequence[Sequence[Text]], used: Sequence[int]) -> list[int]:
    return [max(cell_len(row[at].plain) for row in table) for at in used]


def _needed(table: Sequence[Sequence[Text]], used: Sequence[int]) -> int:
    *others, last = _widths(table, used)
    return sum(others) + len(_BETWEEN) * len(others) + min(last, _LEAST_OF_THE_LAST)
