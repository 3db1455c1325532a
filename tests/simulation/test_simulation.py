"""Every workload undisturbed, and the plans that catch seeded bugs; `make simulate` runs all plans, or one by name."""

import pytest
from mutants.catalogue import MUTANTS
from simulation import oracles
from simulation.plans import Plan
from simulation.running import run
from simulation.workloads import WORKLOADS

PLANS = dict.fromkeys([*map(Plan, WORKLOADS), *(bug.plan for bug in MUTANTS)])


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_whatever_goes_wrong_the_end_is_that_of_a_clean_run(plan):
    wanted = oracles.reference(plan.workload)

    outcome = run(plan, wanted)

    assert oracles.judge(outcome, wanted) == []
    assert outcome.met
