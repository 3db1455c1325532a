"""The workloads of the simulation without a fault: each step ends as its reference says, with no write too many."""

from __future__ import annotations

import pytest
from simulation import oracles
from simulation.plans import Plan
from simulation.running import run
from simulation.workloads import WORKLOADS


@pytest.mark.parametrize("workload", WORKLOADS)
def test_undisturbed_workload_ends_as_its_reference(workload):
    wanted = oracles.reference(workload)
    assert oracles.judge(run(Plan(workload), wanted), wanted) == []
