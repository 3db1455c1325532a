"""What docs/operate/operating.md says of the log."""

from __future__ import annotations

import re
from pathlib import Path

_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "operating.md"


def section_on_logs() -> str:
    """Give the section of the log."""
    return _GUIDE.read_text(encoding="utf-8").partition("\n## What does it log?\n")[2].partition("\n## ")[0]


def documented_fields() -> set[str]:
    """Give the fields that a line about a TFCluster may have beside those of every line."""
    return set(re.findall(r"^\| `(\w+)` \|", section_on_logs().partition("| field |")[2], re.MULTILINE))
