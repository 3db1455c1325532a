"""The seeded bugs fit the sources, and a trial can tell a bug from none; `make mutants` tries them all."""

from __future__ import annotations

import ast
import multiprocessing
from dataclasses import replace

import pytest
from mutants.catalogue import MUTANTS
from mutants.seeding import SOURCES, Mutant, StaleMutantError, read
from mutants.trial import Trial, hold
from simulation.actors import STEP_ACTIONS
from simulation.faults import LINE_ACTIONS, WRITE_ACTIONS
from simulation.plans import Line, Plan, Step, Write
from simulation.plans import read as read_plan
from simulation.workloads import WORKLOADS

_ACTIONS = {Write: WRITE_ACTIONS, Line: LINE_ACTIONS, Step: tuple(STEP_ACTIONS)}
_HARMLESS = Mutant(
    name="a word in a comment",
    file="engine/work_queue.py",
    old='"""Drop what is remembered of a key that no longer exists."""',
    new='"""Drop all that is remembered of a key that is no more."""',
    plan=Plan("create"),
)


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


def test_a_mutant_whose_line_is_gone_or_is_there_twice_is_refused():
    mutant = replace(_HARMLESS, old="a = 1")

    assert mutant.seed("a = 1\nb = 2\n") == f"{_HARMLESS.new}\nb = 2\n"
    for stale in ("b = 2\n", "a = 1\nif b:\n    a = 1\n"):
        with pytest.raises(StaleMutantError, match=r"work_queue\.py holds this \d times, and not once: a = 1"):
            mutant.seed(stale)


def test_a_trial_complains_of_a_bug_and_of_nothing_else():
    bug = next(one for one in MUTANTS if one.plan == _HARMLESS.plan)
    trials = [Trial(SOURCES, (one.plan,), one) for one in (_HARMLESS, bug)]

    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        (harmless,), (caught,) = pool.map(hold, trials, chunksize=1)

    assert harmless.complaints == ()
    assert harmless.broken == ""
    assert caught.complaints != ()
