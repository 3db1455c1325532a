"""A seeded bug as data: one line of the operator's sources, its replacement, and the plan that must fail."""

import shutil
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from simulation.plans import Plan

PACKAGE: Final = "tfcluster_operator"
#: The folder with the operator's package.
SOURCES: Final = Path(__file__).parents[2] / "operator"


class StaleMutantError(Exception):
    """A mutant no longer applies to the sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One bug of one line: ``old`` is a part of it that is unique in the file; ``plan`` must fail."""

    name: str
    file: str
    old: str
    new: str
    plan: Plan

    def seed(self, text: str) -> str:
        """Insert the bug into the text of a file."""
        if (found := text.count(self.old)) != 1:
            raise StaleMutantError(f"{self.name}: {self.file} holds this {found} times, and not once: {self.old}")
        return text.replace(self.old, self.new)


def read(mutant: Mutant) -> str:
    return (SOURCES / PACKAGE / mutant.file).read_text()


def copy_package(source: Path, into: Path, mutant: Mutant | None = None) -> None:
    """Copy the operator's package, with a bug or without."""
    shutil.copytree(source / PACKAGE, into / PACKAGE)
    if mutant is not None:
        file = into / PACKAGE / mutant.file
        file.write_text(mutant.seed(file.read_text()))
        # A copy of the file's bytecode would hide the bug if size and time happen to be equal.
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
