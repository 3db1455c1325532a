"""docs/survival.md is whole: every known defect has a row, and every proof that a row names exists where it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from simulation.actors import STEP_ACTIONS
from simulation.faults import LINE_ACTIONS, WRITE_ACTIONS
from simulation.workloads import WORKLOADS

from tfcluster_operator.declaration import reasons
from tfcluster_operator.report import conditions

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
TEXT: Final = (DOCS / "survival.md").read_text(encoding="utf-8")
DEFECTS: Final = [f"O{number}" for number in range(1, 25)]
REASONS: Final = {value for name, value in vars(reasons).items() if name.isupper()}

#: What names of the simulation may stand under a label, and by which words a row introduces them.
PARTS: Final = {
    "plans": ("plan", set(WORKLOADS)),
    "strikes": ("strike", set(STEP_ACTIONS)),
    "writes": ("write", set(WRITE_ACTIONS)),
    "lines": ("line", set(LINE_ACTIONS)),
}
FILES: Final = dict(re.findall(r"^\[(\w+)\]: (\S+)$", TEXT, re.MULTILINE))

_PROOF: Final = re.compile(r"\[`([^`]+)`\]\[(\w+)\]")


class Row(NamedTuple):
    """A row of one of the tables."""

    number: str
    happens: str
    does: str
    seen: str
    proof: str


ROWS: Final = [
    Row(*(cell.strip() for cell in line.strip("|").split("|")))
    for line in TEXT.splitlines()
    if line.startswith("|") and not line.startswith(("| # ", "|---"))
]
PROOFS: Final = sorted({proof for row in ROWS for proof in _PROOF.findall(row.proof)})


def test_every_known_defect_has_a_row():
    assert {row.number for row in ROWS} - {""} == set(DEFECTS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.happens[:60])
def test_every_row_is_whole(row):
    """What happens and what is done are sentences; what is seen is told; there is a proof, and nothing beside it."""
    assert row.happens.endswith(".")
    assert row.does.endswith(".")
    assert row.seen
    assert _PROOF.search(row.proof)
    assert re.fullmatch(r"((plan|strike|write|line)s? |[,;] )*", _PROOF.sub("", row.proof))


@pytest.mark.parametrize(("name", "label"), PROOFS, ids=lambda one: one)
def test_every_proof_exists(name, label):
    """A test is a function of the file that its link leads to; a part of the simulation is one that plans may name."""
    text = (DOCS / FILES[label]).read_text(encoding="utf-8")
    if label in PARTS:
        assert name in PARTS[label][1]
        assert f'"{name}"' in text
    else:
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)


def test_parts_of_the_simulation_are_called_what_they_are():
    for row in ROWS:
        word = ""
        for piece in re.split(r"(\[`[^`]+`\]\[\w+\])", row.proof):
            if match := _PROOF.fullmatch(piece):
                expected = PARTS[match[2]][0] if match[2] in PARTS else ""
                assert word == expected, row.proof
            elif found := re.search(r"(plan|strike|write|line)s? $", piece):
                word = found[1]
            elif ";" in piece:
                word = ""


def test_every_link_is_used():
    assert {label for _, label in PROOFS} == FILES.keys()


def test_reasons_are_those_of_the_code():
    named = {word for row in ROWS for word in re.findall(r"`([A-Z][A-Za-z]+)`", row.seen)}
    assert named - REASONS <= conditions.CONDITION_TYPES
