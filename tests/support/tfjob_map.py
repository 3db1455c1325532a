"""The table of docs/migrate/fields.md: the replacement of each TFJob field."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as File
from typing import Final

from tfcluster.convert.tfjob import Outcome, Path, Verdict

_PAGE: Final = File(__file__).resolve().parents[2] / "docs" / "migrate" / "fields.md"
_HEAD: Final = "| TFJob | TFCluster | verdict | |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Field:
    """A row; ``path`` is empty if TFJob does not have the field, ``becomes`` if the conversion drops it."""

    path: str
    becomes: str
    outcomes: tuple[Outcome, ...]

    @property
    def parts(self) -> list[str]:
        return self.path.replace("[]", ".[]").split(".")

    def covers(self, path: Path) -> bool:
        """Return whether the row covers a path or its parent; R, K and [] stand for any key or index."""
        return (
            bool(self.path)
            and len(self.parts) <= len(path)
            and all(
                part in ("R", "K") or (part == "[]" and isinstance(own, int)) or part == own
                for part, own in zip(self.parts, path, strict=False)
            )
        )


def _fields() -> Iterator[Field]:
    rows = _PAGE.read_text(encoding="utf-8").partition(_HEAD)[2].partition("\n\n")[0]
    for row in rows.splitlines():
        paths, becomes, outcomes, _ = (cell.strip() for cell in row.strip("|").split("|"))
        for path in re.findall("`(.*?)`", paths) or [""]:
            given = tuple(map(Outcome, outcomes.split(", ")))
            yield Field(path, "" if becomes == "none" else becomes.strip("`"), given)


FIELDS: Final = tuple(_fields())


def field_of(verdict: Verdict) -> Field | None:
    """Return the most specific row that a verdict is about."""
    if verdict.path:
        found = [one for one in FIELDS if one.covers(verdict.path)]
    else:
        found = [one for one in FIELDS if not one.path and verdict.target.startswith(one.becomes)]
    return max(found, key=lambda one: len(one.parts), default=None)
