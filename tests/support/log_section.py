"""The section on logs of docs/operate/operating.md."""

import re
from pathlib import Path

_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "operating.md"


def section_on_logs() -> str:
    return _GUIDE.read_text(encoding="utf-8").partition("\n## What does it log?\n")[2].partition("\n## ")[0]


def documented_fields() -> set[str]:
    """Return the documented fields of a line about a TFCluster, without those of every line."""
    sentence = section_on_logs().partition("about a TFCluster also has some of")[2].partition("\n\n")[0]
    return set(re.findall(r"`(\w+)`", sentence))
