"""The choice of plans in a sample."""

from __future__ import annotations

from simulation.generate import sampled
from simulation.plans import Plan, Write

_WRITES = [Write("create", resource, f"c-{index}", 1) for resource in ("pods", "services") for index in range(6)]
_PLANS = [
    Plan(workload, write, action)
    for workload in ("scale", "gang")
    for write, action in [(None, ""), *((write, action) for action in ("crash", "409", "500") for write in _WRITES)]
]


def test_sample_has_each_fault_of_each_workload_and_a_crash_at_each_kind_of_write() -> None:
    kept = sampled(_PLANS, [])

    assert kept == [plan for plan in _PLANS if plan in kept]
    assert {(plan.workload, plan.kind) for plan in kept} == {(plan.workload, plan.kind) for plan in _PLANS}
    crashes = [plan for plan in kept if plan.action == "crash"]
    crashed = {(plan.workload, plan.trigger.resource) for plan in crashes if isinstance(plan.trigger, Write)}
    assert crashed == {(workload, resource) for workload in ("scale", "gang") for resource in ("pods", "services")}
    assert len(kept) < len(_PLANS) / 4


def test_sample_has_the_named_plans() -> None:
    assert set(_PLANS[2:9]) <= set(sampled(_PLANS, _PLANS[2:9]))


def test_new_plan_does_not_change_other_choices() -> None:
    new = Plan("leave", _WRITES[0], "409")

    assert sampled([new, *_PLANS], []) == [new, *sampled(_PLANS, [])]
