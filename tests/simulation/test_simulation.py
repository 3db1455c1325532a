"""The plans that catch seeded bugs; `make simulate` runs all plans, or one by its name."""

from __future__ import annotations

import pytest
from mutants.catalogue import MUTANTS
from simulation import oracles
from simulation.running import run


@pytest.mark.parametrize("plan", dict.fromkeys(bug.plan for bug in MUTANTS), ids=str)
def test_whatever_goes_wrong_the_end_is_that_of_a_clean_run(plan):
    wanted = oracles.reference(plan.workload)

    outcome = run(plan, wanted)

    assert oracles.judge(outcome, wanted) == []
    assert outcome.met
