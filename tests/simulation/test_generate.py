"""Which plans of the simulation are run, where not all of them are."""

from __future__ import annotations

from simulation.generate import thinned
from simulation.plans import Plan, Write

_WRITES = [Write("create", "pods", f"c-worker-{index}", 1) for index in range(6)]
_PLANS = [
    Plan("scale"),
    *(Plan("scale", write, action) for action in ("crash", "409", "500") for write in _WRITES),
]


def test_crashes_and_clean_runs_are_all_kept_and_a_share_of_the_rest() -> None:
    """Two kinds that strike the same writes leave out different ones; the order stays."""
    kept = thinned(_PLANS, 2)

    assert kept == [plan for plan in _PLANS if plan in kept]
    assert {Plan("scale"), *(Plan("scale", write, "crash") for write in _WRITES)} <= set(kept)
    struck = {action: {plan.trigger for plan in kept if plan.action == action} for action in ("409", "500")}
    assert {action: len(writes) for action, writes in struck.items()} == {"409": 3, "500": 3}
    assert struck["409"].isdisjoint(struck["500"])


def test_every_first_one_is_all_of_them() -> None:
    """That is what is run where nobody asks for less."""
    assert thinned(_PLANS, 1) == _PLANS
