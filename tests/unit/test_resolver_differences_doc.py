"""docs/resolver-differences.md names a test for each difference, and the test is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LINES = (ROOT / "docs" / "resolver-differences.md").read_text(encoding="utf-8").splitlines()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES if line.startswith("|")]
CASES = [row for row in ROWS if row[0] != "case" and not set(row[0]) <= {"-"}]
DEFINED = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("row", CASES, ids=lambda row: row[0][:40])
def test_each_difference_names_a_test_that_exists(row):
    """Each row has its five cells, and the last names a test of this repository."""
    assert len(row) == 5
    assert all(row)
    named = re.fullmatch(r"`(test_\w+)`", row[4])
    assert named is not None
    assert named[1] in DEFINED


def test_every_deliberate_difference_is_in_the_table():
    """The tests that show a deliberate difference are those that the table names: none of them is missing there."""
    shown = {
        name
        for module in ("test_cluster_spec_parity.py", "test_device_filter_parity.py", "test_resolver_differences.py")
        for name in re.findall(
            r"^def (test_\w+)\(",
            (ROOT / "tests" / "tensorflow" / module)
            .read_text(encoding="utf-8")
            .partition("# The deliberate differences")[2],
            re.MULTILINE,
        )
    }

    assert len(shown) > 10
    assert shown <= {row[4].strip("`") for row in CASES}
