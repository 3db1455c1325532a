"""The seeded bugs of ``bugs.txt``: realistic mistakes, each with the plan of the simulation that must fail.

A bug is a paragraph: the file and a description, the old text, the new text, and the plan.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mutants.seeding import Mutant
from simulation.plans import Plan
from simulation.plans import read as read_plan


def _bugs(text: str) -> Iterator[Mutant]:
    for paragraph in text.strip("\n").split("\n\n"):
        about, old, new, plan = paragraph.split("\n")
        file, _, name = about.partition(": ")
        assert (old[:2], new[:2].rstrip()) == ("- ", "+"), paragraph
        told = read_plan(plan) if plan.startswith("{") else Plan(plan)
        yield Mutant(name=name, file=file, old=old[2:], new=new[2:], plan=told)


MUTANTS: Final = tuple(_bugs((Path(__file__).parent / "bugs.txt").read_text()))
