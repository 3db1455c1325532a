"""docs/troubleshooting.md leads from each reason of a cluster that is not ready to its row in docs/conditions.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
CONDITIONS = (ROOT / "docs" / "conditions.md").read_text(encoding="utf-8")
#: The text of docs/conditions.md by heading, as links spell it.
_PARTS = re.split(r"^#{2,3} (.+)$", CONDITIONS, flags=re.MULTILINE)
SECTIONS = {heading.lower(): text for heading, text in zip(_PARTS[1::2], _PARTS[2::2], strict=True)}


def test_reasons_are_where_their_links_lead() -> None:
    """Each reason that the page links is a row under the heading of the link."""
    links = re.findall(r"\[`(\w+)`\]\(conditions\.md#(\w+)\)", TEXT)

    assert len(links) > 15
    assert [(reason, heading) for reason, heading in links if f"| `{reason}` |" not in SECTIONS[heading]] == []


def test_every_reason_of_not_being_ready_is_on_the_page() -> None:
    """Whoever sees Ready=False finds its reason here."""
    reasons = set(re.findall(r"^\| False \| `(\w+)` \|", SECTIONS["ready"], re.MULTILINE))

    assert reasons
    assert reasons - set(re.findall(r"`(\w+)`", TEXT)) == set()


def test_errors_on_the_page_are_those_of_the_resolver() -> None:
    """Each error and warning that the page names is a public name of the package."""
    from tfcluster_resolver import errors

    named = set(re.findall(r"`(\w+(?:Error|Warning))`", TEXT))

    assert named
    assert named <= set(vars(errors))
