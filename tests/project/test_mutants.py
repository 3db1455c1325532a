"""The seeded bugs apply to the sources, and a trial detects a bug; `make mutants` runs all of them."""

import ast

import pytest
from mutants.catalogue import MUTANTS
from mutants.seeding import read


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_mutant_changes_one_line_of_the_sources_and_leaves_them_python(mutant):
    before = read(mutant)

    after = mutant.seed(before)

    lines = list(zip(before.splitlines(), after.splitlines(), strict=True))
    assert sum(old != new for old, new in lines) == 1
    assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after))
