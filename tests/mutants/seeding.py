"""A seeded bug as data: one line of the operator's sources, its replacement, and the plan that must fail."""

from __future__ import annotations

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
    """One bug of one line.

    Attributes:
        name: a short description.
        file: the path in the package.
        old: the text of a line, or a part of it that is unique in the file.
        new: its replacement.
        plan: the plan that must fail.
    """

    name: str
    file: str
    old: str
    new: str
    plan: Plan

    def seed(self, text: str) -> str:
        """Insert the bug into the text of a file.

        Returns:
            The text with the bug.

        Raises:
            StaleMutantError: the old text does not occur exactly once.
        """
        if (found := text.count(self.old)) != 1:
            raise StaleMutantError(f"{self.name}: {self.file} holds this {found} times, and not once: {self.old}")
        return text.replace(self.old, self.new)


def read(mutant: Mutant) -> str:
    """Read the file of the checkout that a mutant changes."""
    return (SOURCES / PACKAGE / mutant.file).read_text()


def copy_package(source: Path, into: Path, mutant: Mutant | None = None) -> None:
    """Copy the operator's package.

    Raises:
        StaleMutantError: the bug no longer applies to the sources.
    """
    shutil.copytree(source / PACKAGE, into / PACKAGE)
    if mutant is not None:
        file = into / PACKAGE / mutant.file
        file.write_text(mutant.seed(file.read_text()))
        # A copy of the file's bytecode would hide the bug if size and time happen to be equal.
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
