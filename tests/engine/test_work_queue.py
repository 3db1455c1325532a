"""The work queue, second by second, on a clock that jumps."""

import asyncio
import logging
from typing import Any

import pytest
from support.async_tests import virtual
from support.virtual_time import run_in_virtual_time

from tfcluster_operator.engine import work_queue
from tfcluster_operator.engine.work_queue import NextPart, RetryLater, WorkQueue

Step = tuple[float, str]
Marks = tuple[float, str, dict[str, Any]]

FAILURE = ValueError("a bug")
REFUSED = RetryLater("no answer")


class Stage:
    """A queue, the reconciles that it made, how long one lasts, and the successive ``results`` of key a."""

    def __init__(self, *, lasts: float = 0.0, results: list[Any] | None = None) -> None:
        self.clock = asyncio.get_running_loop().time
        self.start = self.clock()
        self.passes: list[Step] = []
        self.lasts = lasts
        self.results = results or []
        self.queue = WorkQueue(self._work, clock=self.clock)

    async def _work(self, key: str) -> float | None:
        self.passes.append((round(self.clock() - self.start, 2), key))
        await asyncio.sleep(self.lasts)
        result = self.results.pop(0) if key == "a" and self.results else None
        if isinstance(result, Exception):
            raise result
        return result


def at(seconds: float, keys: str, **how: Any) -> Marks:
    """Mark these keys, of a letter each, at this time after the start."""
    return seconds, keys, how


def play(*script: Marks, seconds: float = 1000, workers: int = 2, **stage: Any) -> list[Step]:
    """Run a queue while keys are marked, and for this number of seconds more; return its reconciles."""

    async def scenario() -> list[Step]:
        set_up = Stage(**stage)
        run = asyncio.create_task(set_up.queue.run(workers))
        for moment, keys, how in script:
            if (pause := set_up.start + moment - set_up.clock()) > 0.01:
                await asyncio.sleep(pause)
            for key in keys:
                set_up.queue.mark(key, **how)
        await asyncio.sleep(seconds)
        run.cancel()
        return set_up.passes

    return run_in_virtual_time(scenario())


@pytest.fixture(autouse=True)
def _no_jitter(monkeypatch):
    monkeypatch.setattr("random.uniform", lambda _low, _high: 1.0)


#: The duration of a reconcile, the marks, and the reconciles.
MARKS = {
    "marks before a pass are one pass": (0.0, [at(0, "a" * 100)], [(0, "a")]),
    "marks during a pass make one more": (1.0, [at(0, "a"), at(0.2, "a"), at(0.6, "a")], [(0, "a"), (2, "a")]),
    "a key rests four times as long as its pass": (0.2, [at(0, "a"), at(0.3, "a")], [(0, "a"), (1.0, "a")]),
    "and half a second at least": (0.1, [at(0, "a"), at(0.2, "a")], [(0, "a"), (0.6, "a")]),
    "and a second at most": (10.0, [at(0, "a"), at(10.5, "a")], [(0, "a"), (11, "a")]),
    "an urgent mark skips the rest, also one during a pass": (
        1.0,
        [at(0, "a"), at(1.2, "a", urgent=True), at(1.7, "a", urgent=True)],
        [(0, "a"), (1.2, "a"), (2.2, "a")],
    ),
    "an urgent mark moves a resting one forward": (
        1.0,
        [at(0, "a"), at(1.1, "a"), at(1.1, "a", urgent=True)],
        [(0, "a"), (1.1, "a")],
    ),
    "a key that is ahead rests a tenth of a second": (
        10.0,
        [at(0, "a"), at(10.05, "a", ahead=True)],
        [(0, "a"), (10.1, "a")],
    ),
    "a mark ahead moves a later one": (0.0, [at(0, "a", after=30), at(0, "a", ahead=True)], [(0, "a")]),
    "a mark for later waits": (0.0, [at(0, "a", after=30)], [(30, "a")]),
    "the earlier of two marks wins": (0.0, [at(0, "a", after=30), at(0, "a", after=5)], [(5, "a")]),
    "in whichever order they come": (0.0, [at(0, "a", after=5), at(0, "a", after=30)], [(5, "a")]),
    "a mark for later counts from the mark": (5.0, [at(0, "a"), at(1, "a", after=20)], [(0, "a"), (21, "a")]),
    "as many keys at once as workers": (5.0, [at(0, "abcd")], [(0, "a"), (0, "b"), (5, "c"), (5, "d")]),
    "a key that is marked while it waits runs once": (
        5.0,
        [at(0, "xya"), *(at(moment, "a") for moment in (0.5, 1, 1.5, 2, 2.5))],
        [(0, "x"), (0, "y"), (5, "a")],
    ),
}


@pytest.mark.parametrize("case", MARKS)
def test_marks_start_reconciles(case):
    lasts, script, passes = MARKS[case]
    assert play(*script, lasts=lasts) == passes


@pytest.mark.parametrize(("ahead", "order"), [("lc", "alcbd"), ("a", "abacd")], ids=["one that waited", "the current"])
def test_keys_that_are_ahead_have_their_passes_before_the_others_that_wait(ahead, order):
    """During the reconcile of a, b, c and d are marked, and then a loss; after a reconcile a key rests."""
    passes = play(at(0, "a"), at(0.5, "bcd"), at(0.5, ahead, ahead=True), workers=1, lasts=1.0)
    assert "".join(key for _, key in passes) == order


def test_every_eighth_pass_is_of_those_that_others_are_ahead_of():
    """Although losses never stop, the other keys are reconciled eventually."""
    passes = play(at(0, "abcdefghijklmnopqrstu", ahead=True), at(0, "123"), workers=1, lasts=1.0)
    assert [number for number, (_, key) in enumerate(passes) if key in "123"] == [7, 15, 23]


def test_next_part_of_a_large_plan_comes_without_a_rest_and_after_who_waits():
    passes = play(at(0, "a"), at(0.5, "b"), lasts=1.0, workers=1, results=[NextPart(), NextPart(), None])
    assert passes == [(0, "a"), (1, "b"), (2, "a"), (3, "a")]


def test_failing_reconcile_backs_off_up_to_a_minute():
    passes = play(at(0, "a"), at(10, "b"), seconds=300, results=[FAILURE] * 100)
    assert [moment for moment, key in passes if key == "a"] == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303]
    assert [moment for moment, key in passes if key == "b"] == [10]


@pytest.mark.parametrize(
    ("results", "moments"),
    [
        ([7.0, 0.0], [0, 7, 7.5]),
        ([REFUSED] * 5, [0, 1, 3, 6, 9, 12]),
        ([REFUSED, REFUSED, 50.0, REFUSED], [0, 1, 3, 53, 54]),
    ],
    ids=["it asks for another", "no answer: at least every three seconds", "success ends the pauses"],
)
def test_result_of_a_reconcile_schedules_the_next(results, moments):
    assert play(at(0, "a"), results=results) == [(moment, "a") for moment in moments]


@virtual
async def test_a_forgotten_key_starts_over():
    """A re-created TFCluster of the same name does not inherit the failures, nor the rest."""
    stage = Stage(results=[FAILURE] * 20)
    run = asyncio.create_task(stage.queue.run(2))
    stage.queue.mark("a")
    await asyncio.sleep(8)
    stage.queue.forget("a")
    await asyncio.sleep(17)
    run.cancel()
    assert [moment for moment, _ in stage.passes] == [0, 1, 3, 7, 15, 16, 18, 22]


@virtual
async def test_what_is_remembered_of_keys_is_bounded(monkeypatch):
    """Expired rests are dropped, so that deleted TFClusters leave nothing behind."""
    monkeypatch.setattr(work_queue, "_RESTING_AT_MOST", 10)
    stage = Stage(lasts=0.01)
    run = asyncio.create_task(stage.queue.run(2))
    for number in range(100):
        stage.queue.mark(f"key-{number}")
        await asyncio.sleep(1)
    run.cancel()
    assert len(stage.queue._rest_until) <= 11


@virtual
async def test_overdue_are_those_that_wait_for_a_worker():
    """A due key without a worker waits since it was due; one that is marked for later does not wait."""
    stage = Stage(lasts=8.0)
    run = asyncio.create_task(stage.queue.run(1))
    for key in "abc":
        stage.queue.mark(key)
    stage.queue.mark("later", after=100)
    seen = []
    for seconds in (5.0, 5.0, 8.0):
        await asyncio.sleep(seconds)
        depth, oldest = stage.queue.overdue()
        seen.append((depth, round(oldest, 2)))
    run.cancel()
    assert seen == [(2, 5.0), (1, 10.0), (0, 0.0)]


@virtual
async def test_each_reconcile_is_reported_with_its_outcome(caplog):
    """Its duration and its outcome; a repeated rejection is logged once at info, with the cluster."""
    caplog.set_level(logging.INFO)
    told: list[tuple[float, str]] = []
    ends = [RetryLater('Invalid value: "SECRET"'), RetryLater("no"), None, FAILURE]

    async def work(_: tuple[str, str]) -> float | None:
        await asyncio.sleep(2)
        end = ends.pop(0) if ends else None
        if end is not None:
            raise end
        return 1.0 if ends else None

    clock = asyncio.get_running_loop().time
    queue = WorkQueue(work, clock=clock, took=lambda *one: told.append(one))
    run = asyncio.create_task(queue.run(1))
    queue.mark(("team", "c"))
    await asyncio.sleep(100)
    run.cancel()
    ends_told = ("retried", "retried", "done", "failed", "done")
    assert [(round(seconds, 2), end) for seconds, end in told] == [(2.0, end) for end in ends_told]
    lines = [(line.levelname, line.getMessage(), line.fields) for line in caplog.records]
    cluster = {"cluster": "team/c"}
    assert lines == [("INFO", 'tried again: Invalid value: "…"', cluster), ("ERROR", "the pass failed", cluster)]
