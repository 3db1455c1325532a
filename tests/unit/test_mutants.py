"""The seeded bugs apply to the sources, and a trial detects a bug; `make mutants` runs all of them."""

from __future__ import annotations

import ast

import pytest
from mutants.catalogue import MUTANTS
from mutants.seeding import read
from simulation.actors import STEP_ACTIONS
from simulation.faults import LINE_ACTIONS, WRITE_ACTIONS
from simulation.plans import Line, Step, Write
from simulation.plans import read as read_plan
from simulation.workloads import WORKLOADS

_ACTIONS = {Write: WRITE_ACTIONS, Line: LINE_ACTIONS, Step: tuple(STEP_ACTIONS)}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_mutant_changes_one_line_of_the_sources_and_leaves_them_python(mutant):
    before = read(mutant)

    after = mutant.seed(before)

    lines = list(zip(before.splitlines(), after.splitlines(), strict=True))
    assert sum(old != new for old, new in lines) == 1
    assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_the_plan_of_a_mutant_is_one_that_make_simulate_can_repeat(mutant):
    plan = mutant.plan

    assert read_plan(str(plan)) == plan
    assert plan.workload in WORKLOADS
    if plan.trigger is not None:
        assert plan.action in _ACTIONS[type(plan.trigger)]
