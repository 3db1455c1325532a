"""The work queue, second by second, on a clock that jumps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.virtual_time import run_in_virtual_time

from tfcluster_operator.engine import work_queue
from tfcluster_operator.engine.work_queue import NextPart, RetryLater, WorkQueue

Step = tuple[float, str]


class Stage:
    """A queue on the loop's clock, and the passes that it made, each with the seconds since the start.

    ``lasts`` is how long a pass takes, ``results`` what the passes of a key give in turn (an exception is raised).
    """

    def __init__(self, *, lasts: float = 0.0, results: dict[str, list[Any]] | None = None) -> None:
        self.clock = asyncio.get_running_loop().time
        self.start = self.clock()
        self.passes: list[Step] = []
        self.lasts = lasts
        self.results = results or {}
        self.queue: WorkQueue[str] = WorkQueue(self._work, clock=self.clock)

    async def _work(self, key: str) -> float | None:
        self.passes.append((round(self.clock() - self.start, 2), key))
        await asyncio.sleep(self.lasts)
        left = self.results.get(key)
        result = left.pop(0) if left else None
        if isinstance(result, Exception):
            raise result
        return result


def play(
    script: Callable[[Stage], Awaitable[None]], *, seconds: float = 1000, workers: int = 2, **stage: Any
) -> list[Step]:
    """Run a queue while a script marks keys; give the passes that it made."""

    async def scenario() -> list[Step]:
        set_up = Stage(**stage)
        run = asyncio.create_task(set_up.queue.run(workers))
        await script(set_up)
        await asyncio.sleep(seconds)
        run.cancel()
        return set_up.passes

    return run_in_virtual_time(scenario())


@pytest.fixture(autouse=True)
def _no_jitter(monkeypatch):
    monkeypatch.setattr(work_queue.random, "uniform", lambda _low, _high: 1.0)


def test_marks_before_a_pass_are_one_pass():
    """However often a key is marked, one pass sees it all."""

    async def script(stage: Stage) -> None:
        for _ in range(100):
            stage.queue.mark("a")

    assert play(script) == [(0.0, "a")]


def test_marks_during_a_pass_make_one_more():
    """What changed while a pass ran is seen by the next, and by one only."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        for _ in range(3):
            await asyncio.sleep(0.2)
            stage.queue.mark("a")

    assert play(script, lasts=1.0) == [(0.0, "a"), (2.0, "a")]


def test_a_key_rests_four_times_as_long_as_its_pass_took():
    """A pass of 0.1 s is followed by a rest of 0.4 s, so that events make no storm of passes."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(0.2)
        stage.queue.mark("a")

    assert play(script, lasts=0.1) == [(0.0, "a"), (0.5, "a")]


def test_a_rest_is_a_second_at_most():
    """A pass of 10 s does not make a key deaf."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(10.5)
        stage.queue.mark("a")

    assert play(script, lasts=10.0) == [(0.0, "a"), (11.0, "a")]


def test_an_urgent_mark_skips_the_rest():
    """The user edited the TFCluster: the pass comes at once, also for a mark during a pass."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(1.2)
        stage.queue.mark("a", urgent=True)
        await asyncio.sleep(0.5)
        stage.queue.mark("a", urgent=True)

    assert play(script, lasts=1.0) == [(0.0, "a"), (1.2, "a"), (2.2, "a")]


@pytest.mark.parametrize(
    ("ahead", "order"),
    [
        pytest.param(["lost", "c"], ["a", "lost", "c", "b", "d"], id="also one that was waiting"),
        pytest.param(["a"], ["a", "b", "a", "c", "d"], id="also the one that has a pass now"),
    ],
)
def test_keys_that_are_ahead_have_their_passes_before_the_others_that_wait(ahead, order):
    """While a has its pass, b, c and d are marked, and then what was lost; after a pass a key rests."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(0.5)
        for key in ("b", "c", "d"):
            stage.queue.mark(key)
        for key in ahead:
            stage.queue.mark(key, ahead=True)

    passes = play(script, workers=1, lasts=1.0)

    assert [key for _, key in passes] == order


def test_every_eighth_pass_is_of_those_that_others_are_ahead_of():
    """However much is lost all the time, the others are told in the end."""

    async def script(stage: Stage) -> None:
        for number in range(21):
            stage.queue.mark(f"lost-{number}", ahead=True)
        for number in range(3):
            stage.queue.mark(f"told-{number}")

    passes = play(script, workers=1, lasts=1.0)

    assert [number for number, (_, key) in enumerate(passes) if key.startswith("told")] == [7, 15, 23]


def test_a_key_that_is_ahead_rests_a_tenth_of_a_second_at_most():
    """A pass is long where the server is slow: what is lost then is replaced soon, and not in the same instant."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(10.05)
        stage.queue.mark("a", ahead=True)

    assert play(script, lasts=10.0) == [(0.0, "a"), (10.1, "a")]


def test_a_mark_ahead_of_a_key_that_waits_for_later_brings_it_forward():
    """A key that is due in 30 s and loses a pod has its pass now, and one pass it is."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a", after=30)
        stage.queue.mark("a", ahead=True)

    assert play(script) == [(0.0, "a")]


def test_next_part_of_a_large_plan_comes_without_a_rest_and_after_who_waits():
    """Five parts of a second each take five seconds, and another key has its turn between them."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(0.5)
        stage.queue.mark("b")

    parts = {"a": [NextPart(), NextPart(), None]}

    assert play(script, lasts=1.0, workers=1, results=parts) == [(0.0, "a"), (1.0, "b"), (2.0, "a"), (3.0, "a")]


def test_an_urgent_mark_moves_a_resting_one_forward():
    """The earlier of two marks wins, and the later makes no pass of its own."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(1.1)
        stage.queue.mark("a")
        stage.queue.mark("a", urgent=True)

    assert play(script, lasts=1.0) == [(0.0, "a"), (1.1, "a")]


def test_a_mark_for_later_waits():
    """``after`` is in seconds from the mark."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a", after=30)

    assert play(script) == [(30.0, "a")]


@pytest.mark.parametrize(("first", "second"), [(30, 5), (5, 30)])
def test_the_earlier_of_two_marks_wins(first, second):
    """In whichever order they come, there is one pass, at the earlier time."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a", after=first)
        stage.queue.mark("a", after=second)

    assert play(script) == [(5.0, "a")]


def test_a_mark_for_later_during_a_pass_keeps_its_time():
    """The wait counts from the mark, not from the end of the pass."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(1)
        stage.queue.mark("a", after=20)

    assert play(script, lasts=5.0) == [(0.0, "a"), (21.0, "a")]


def test_a_pass_can_ask_for_another():
    """What a pass gives is when its key wants the next, in seconds."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")

    assert play(script, results={"a": [7.0, 0.0]}) == [(0.0, "a"), (7.0, "a"), (7.0, "a")]


def test_a_pass_that_fails_is_repeated_with_doubling_pauses_up_to_a_minute():
    """1, 2, 4 ... 60 seconds, and one cluster's failure costs the others nothing."""
    failure = ValueError("a bug")

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(10)
        stage.queue.mark("b")

    passes = play(script, seconds=300, results={"a": [failure] * 100})

    assert [at for at, key in passes if key == "a"] == [
        0.0,
        1.0,
        3.0,
        7.0,
        15.0,
        31.0,
        63.0,
        123.0,
        183.0,
        243.0,
        303.0,
    ]
    assert [at for at, key in passes if key == "b"] == [10.0]


def test_a_pass_without_an_answer_is_repeated_every_three_seconds_at_least():
    """While the API server is away, each cluster is tried often: when it is back, the status is soon right."""

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")

    passes = play(script, seconds=13, results={"a": [RetryLater("no answer")] * 20})

    assert [at for at, _ in passes] == [0.0, 1.0, 3.0, 6.0, 9.0, 12.0]


def test_a_pass_that_succeeds_ends_the_pauses():
    """After a success the next failure is the first again."""
    failed = RetryLater("no")

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")

    passes = play(script, results={"a": [failed, failed, 50.0, failed]})

    assert [at for at, _ in passes] == [0.0, 1.0, 3.0, 53.0, 54.0]


def test_a_forgotten_key_starts_over():
    """A TFCluster that is made again under a name does not inherit its failures, nor its rest."""
    failed = ValueError("a bug")

    async def script(stage: Stage) -> None:
        stage.queue.mark("a")
        await asyncio.sleep(8)
        stage.queue.forget("a")

    passes = play(script, seconds=17, results={"a": [failed] * 20})

    assert [at for at, _ in passes] == [0.0, 1.0, 3.0, 7.0, 15.0, 16.0, 18.0, 22.0]


def test_so_many_keys_at_once_as_there_are_workers():
    """The third key waits for a worker; keys are served in the order of their time."""

    async def script(stage: Stage) -> None:
        for key in "abcd":
            stage.queue.mark(key)

    assert play(script, lasts=5.0) == [(0.0, "a"), (0.0, "b"), (5.0, "c"), (5.0, "d")]


def test_a_key_that_is_marked_while_it_waits_for_a_worker_runs_once():
    """Between its turn and its pass a key is neither due nor busy; a mark then makes no second pass beside it."""

    async def script(stage: Stage) -> None:
        for key in "xya":
            stage.queue.mark(key)
        for _ in range(5):
            await asyncio.sleep(0.5)
            stage.queue.mark("a")

    assert play(script, lasts=5.0) == [(0.0, "x"), (0.0, "y"), (5.0, "a")]


def test_what_is_remembered_of_keys_is_bounded(monkeypatch):
    """Rests that are over are dropped, so that deleted TFClusters leave nothing behind."""
    monkeypatch.setattr(work_queue, "_RESTING_AT_MOST", 10)
    remembered = []

    async def script(stage: Stage) -> None:
        for number in range(100):
            stage.queue.mark(f"key-{number}")
            await asyncio.sleep(1)
        remembered.append(len(stage.queue._rest_until))

    play(script, lasts=0.01)

    assert remembered[0] <= 11


def test_overdue_are_those_that_wait_for_a_worker():
    """A key that is due and has no worker waits since it was due; one that is marked for later does not wait."""
    seen: list[tuple[int, float]] = []

    async def script(stage: Stage) -> None:
        for key in "abc":
            stage.queue.mark(key)
        stage.queue.mark("later", after=100)
        for seconds in (5.0, 5.0, 8.0):
            await asyncio.sleep(seconds)
            depth, oldest = stage.queue.overdue()
            seen.append((depth, round(oldest, 2)))

    play(script, seconds=20, workers=1, lasts=8.0)

    assert seen == [(2, 5.0), (1, 10.0), (0, 0.0)]


def test_each_pass_is_told_with_its_end(caplog):
    """How long it took and how it ended; a refusal that goes on is logged once at info, with the cluster."""
    told: list[tuple[float, str]] = []
    ends = [RetryLater('Invalid value: "SECRET"'), RetryLater("no"), None, ValueError("a bug")]

    async def work(_: tuple[str, str]) -> float | None:
        await asyncio.sleep(2)
        end = ends.pop(0) if ends else None
        if end is not None:
            raise end
        return 1.0 if ends else None

    async def scenario() -> None:
        clock = asyncio.get_running_loop().time
        queue: WorkQueue[tuple[str, str]] = WorkQueue(work, clock=clock, took=lambda *one: told.append(one))
        run = asyncio.create_task(queue.run(1))
        queue.mark(("team", "c"))
        await asyncio.sleep(100)
        run.cancel()

    with caplog.at_level(logging.INFO):
        run_in_virtual_time(scenario())

    assert [(round(seconds, 2), end) for seconds, end in told] == [
        (2.0, "retried"),
        (2.0, "retried"),
        (2.0, "done"),
        (2.0, "failed"),
        (2.0, "done"),
    ]
    lines = [(line.levelname, line.getMessage(), line.fields) for line in caplog.records]
    cluster = {"cluster": "team/c"}
    assert lines == [
        ("INFO", 'tried again: Invalid value: "…"', cluster),
        ("ERROR", "the pass failed", cluster),
    ]
