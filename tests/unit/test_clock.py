"""The operator's clock: it advances evenly, independent of changes of the machine's clock."""

from __future__ import annotations

import time

import pytest

from tfcluster_operator.kube import clock


class Machine:
    """Two readings of a machine; an administrator can change one of them."""

    def __init__(self) -> None:
        self.wall = 1_800_000_000.0
        self.elapsed = 50.0

    def run(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds


@pytest.mark.parametrize("step", [3600.0, -3600.0, 1e9, -1e9])
def test_step_of_the_system_clock_is_ignored(step):
    machine = Machine()
    ours = clock.steady(lambda: machine.wall, lambda: machine.elapsed)
    machine.run(10)
    before = (ours.wall(), ours.elapsed())
    machine.wall += step
    machine.run(1)
    assert before == (1_800_000_010.0, 60.0)
    assert (ours.wall(), ours.elapsed()) == (1_800_000_011.0, 61.0)


def test_wall_clock_is_read_once():
    readings = iter([1_800_000_000.0])
    machine = Machine()
    ours = clock.steady(lambda: next(readings), lambda: machine.elapsed)
    machine.run(5)
    assert (ours.wall(), ours.wall()) == (1_800_000_005.0, 1_800_000_005.0)


def test_clock_of_the_system_tells_the_time_and_goes_forward():
    assert abs(clock.SYSTEM.wall() - time.time()) < 1.0
    first, second = clock.SYSTEM.elapsed(), clock.SYSTEM.elapsed()
    assert first <= second
