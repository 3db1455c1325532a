"""Chosen plans of the simulation; `make simulate` runs them all, and one by its name."""

from __future__ import annotations

import pytest
from simulation import generate, oracles
from simulation.plans import Plan
from simulation.running import run
from simulation.workloads import WORKLOADS

#: How many plans `make check` runs.
_CHOSEN = 150


def _chosen() -> list[Plan]:
    made = []
    for workload in WORKLOADS:
        made += generate.plans_of(run(Plan(workload), recording=True))
    return generate.chosen(made, _CHOSEN)


@pytest.mark.parametrize("plan", _chosen(), ids=str)
def test_whatever_goes_wrong_the_end_is_that_of_a_clean_run(plan):
    wanted = oracles.reference(plan.workload)

    outcome = run(plan, wanted)

    assert oracles.judge(outcome, wanted) == []
    assert outcome.met
