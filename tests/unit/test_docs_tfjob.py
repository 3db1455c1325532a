"""docs/tfjob.md is whole: every behaviour and every defect has a verdict, and each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "tfjob.md").read_text(encoding="utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in DOCUMENT.splitlines()
    if re.fullmatch(r"D?\d+", (cells := [cell.strip() for cell in line.strip("|").split("|")])[0])
}
BEHAVIOURS = [str(number) for number in range(1, 42)]
DEFECTS = [f"D{number}" for number in range(1, 12)]


@pytest.fixture(scope="module")
def tests() -> frozenset[str]:
    found = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in found for name in re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


def test_every_number_is_there_once_and_in_order() -> None:
    numbers = re.findall(r"^\| (D?\d+) \|", DOCUMENT, re.MULTILINE)
    assert numbers == [*BEHAVIOURS, *DEFECTS]


@pytest.mark.parametrize("number", [*BEHAVIOURS, *DEFECTS])
def test_every_row_has_a_fact_a_verdict_and_its_reason(number: str) -> None:
    """A row says what TFJob does and gives a verdict; one that is not plainly the same says why."""
    fact, verdict, shown = ROWS[number]
    assert fact.endswith(".")
    assert re.match(r"same($|[,;] \w)|better: \w|not ours: \w", verdict), verdict
    assert re.fullmatch(r"`test_\w+`(, `test_\w+`)*", shown), shown


@pytest.mark.parametrize("number", [*BEHAVIOURS, *DEFECTS])
def test_every_row_names_tests_that_exist(number: str, tests: frozenset[str]) -> None:
    named = re.findall(r"`(test_\w+)`", ROWS[number][2])
    assert [name for name in named if name not in tests] == []
