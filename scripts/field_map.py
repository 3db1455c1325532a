"""The table of TFJob's fields in docs/tfjob.md, made of the conversion's own map; `make reference` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tfcluster.convert.fields import FIELDS, Field

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "tfjob.md"
_BEGIN, _END = "<!-- field map: made by `make reference` -->\n", "<!-- end of the field map -->\n"


def page() -> str:
    """Make the page anew: its own words, with the table of now.

    Raises:
        ValueError: the page has no place for the table.
    """
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for the table: {_BEGIN}")
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


def table() -> str:
    """Make the table of all fields.

    Returns:
        Its Markdown; fields that become the same, with the same verdicts and words, share a row.
    """
    groups: dict[tuple[object, ...], list[Field]] = {}
    for field in FIELDS:
        groups.setdefault((field.becomes, field.outcomes, field.words), []).append(field)
    rows = ["| TFJob | TFCluster | verdict | |", "|---|---|---|---|", *map(_row, groups.values())]
    return "".join(f"{row}\n" for row in rows)


def _row(fields: list[Field]) -> str:
    first = fields[0]
    paths = ", ".join(f"`{field.path}`" for field in fields if field.path) or "none"
    becomes = f"`{first.becomes}`" if first.becomes else "none"
    verdicts = ", ".join(outcome.value for outcome in first.outcomes)
    return f"| {paths} | {becomes} | {verdicts} | {first.words} |"
