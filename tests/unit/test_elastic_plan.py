"""What a running program can follow of a change of its cluster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tfcluster_resolver.cluster import Task
from tfcluster_resolver.elastic.plan import Change, Jobs, Known, changed, joined, only, plan
from tfcluster_resolver.errors import RestartNeededError

JOBS = {"ps": {0: "p0:1"}, "worker": {0: "w0:1", 1: "w1:1"}}
CHIEF = {"chief": {0: "c:1"}}


def known(jobs: Jobs = JOBS, **other) -> Known:
    return Known(jobs, "chief", "c:1", **other)


def workers(count: int) -> dict[int, str]:
    return {index: f"w{index}:1" for index in range(count)}


def planned(jobs: Jobs, now: Known | None = None, pods: dict[tuple[str, int], str] | None = None) -> Change:
    return plan(now or known(), {**CHIEF, **JOBS, **jobs}, pods or {}, epoch=7)


def test_nothing_changes():
    """The same cluster is no change, and neither is one that does not show the own job."""
    assert planned({}) == Change(7)
    assert not planned({})
    assert plan(known(), JOBS, {}, epoch=7) == Change(7)


@pytest.mark.parametrize("count", [3, 8])
def test_workers_come_at_the_top(count: int):
    """New workers are those above the ones that are there."""
    change = planned({"worker": workers(count)})

    assert change.added == tuple(Task("worker", index, f"w{index}:1") for index in range(2, count))
    assert change.removed == change.replaced == change.refused == ()


def test_workers_go_from_the_top():
    """The lowest workers stay."""
    assert planned({"worker": workers(1)}).removed == (Task("worker", 1, "w1:1"),)


@pytest.mark.parametrize("job", ["worker", "ps"])
def test_one_task_of_a_job_stays(job: str):
    """The last task of a job is not followed away: the strategy needs it."""
    change = planned({job: {}})

    assert [one.task.index for one in change.refused] == [0]
    assert "needs one of them" in str(change.refused[0])
    assert all(task.index for task in change.removed)


def test_tasks_above_a_gap_are_refused():
    """Nothing above a missing index comes, because the strategy counts without a gap."""
    change = planned({"worker": {0: "w0:1", 1: "w1:1", 2: "w2:1", 4: "w4:1"}})

    assert change.added == (Task("worker", 2, "w2:1"),)
    assert [(one.task.index, "index 3 is missing" in one.reason) for one in change.refused] == [(4, True)]


def test_filters_must_be_there_before_a_task():
    """A task without device filters does not come where others of its job have some, and none above it."""
    filtered = {("worker", index) for index in (0, 1, 2, 4)}

    change = planned({"worker": workers(5)}, known(filtered=filtered))

    assert change.added == (Task("worker", 2, "w2:1"),)
    assert [one.task.index for one in change.refused] == [3, 4]
    assert "no device filters" in change.refused[0].reason


def test_filters_of_another_job_are_of_no_matter():
    """Where no worker has device filters, a new one needs none."""
    assert planned({"worker": workers(3)}, known(filtered={("ps", 0)})).added == (Task("worker", 2, "w2:1"),)


def test_ps_that_holds_something_stays():
    """A ps that holds variables stays, and so does an empty one below it; the refusal names what would be lost."""
    holds = {1: [], 2: ["variable w:0", "variable b:0"], 3: []}
    before = {**JOBS, "ps": {index: f"p{index}:1" for index in range(4)}}

    change = planned({"ps": {0: "p0:1"}}, known(before, held=lambda index: holds[index]))

    assert change.removed == (Task("ps", 3, "p3:1"),)
    assert [one.task.index for one in change.refused] == [1, 2]
    assert "/job:ps/task:2 above it stays" in change.refused[0].reason
    assert "variable w:0, variable b:0" in change.refused[1].reason


def test_long_lists_are_cut():
    """A refusal names ten variables and counts the others."""
    before = {**JOBS, "ps": {0: "p0:1", 1: "p1:1"}}

    change = planned({"ps": {0: "p0:1"}}, known(before, held=lambda _: [f"v{index}" for index in range(12)]))

    assert "v9 and 2 more" in change.refused[0].reason


def test_another_address_replaces():
    """A task whose address changed is replaced; a ps only where nothing lived there."""
    moved = {"worker": {0: "w0:1", 1: "x:1"}, "ps": {0: "y:1"}}

    assert planned(moved).replaced == (Task("worker", 1, "x:1"), Task("ps", 0, "y:1"))
    change = planned(moved, known(held=lambda _: ["variable w:0"]))
    assert change.replaced == (Task("worker", 1, "x:1"),)
    assert "variable w:0 lived there: restore a checkpoint" in change.refused[0].reason


def test_another_pod_replaces():
    """A task that is another pod behind the same address is replaced; one of which that is not known is not."""
    before = known(incarnations={("worker", 0): "a", ("worker", 1): "b"})

    change = planned({}, before, {("worker", 0): "a", ("worker", 1): "c", ("ps", 0): "d"})

    assert change.replaced == (Task("worker", 1, "w1:1"),)
    assert not planned({}, before).replaced


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({**CHIEF, **JOBS, "evaluators": {0: "e:1"}}, "evaluators, ps, worker in place of ps, worker"),
        ({**CHIEF, "worker": workers(2)}, "worker in place of ps, worker"),
        ({**JOBS, "chief": {0: "d:1"}}, "was c:1 and is now d:1"),
    ],
)
def test_only_a_restart_follows(wanted: Jobs, says: str):
    """Other jobs and another address of the own process are followed by a restart alone."""
    with pytest.raises(RestartNeededError, match=says):
        plan(known(), wanted, {}, epoch=7)


@pytest.mark.parametrize(
    ("ready", "added", "replaced"),
    [((2, 3), [2, 3], []), ((2,), [2], []), ((3,), [], []), ((1, 3), [], [1]), ((), [], [])],
)
def test_only_those_that_are_ready(ready: Sequence[int], added: list[int], replaced: list[int]):
    """Of workers that come, those without a gap below them; of replaced ones, each by itself."""
    tasks = {index: Task("worker", index, f"w{index}:1") for index in range(4)}
    change = Change(7, added=(tasks[2], tasks[3]), removed=(Task("ps", 1, "p1:1"),), replaced=(tasks[1],))

    part = only(change, {tasks[index] for index in ready})

    assert [task.index for task in part.added] == added
    assert [task.index for task in part.replaced] == replaced
    assert part.removed == change.removed


def test_changed_jobs():
    """A change applied to the tasks gives those that the program uses after it."""
    change = Change(
        7, added=(Task("ps", 1, "p1:1"),), removed=(Task("worker", 1, "w1:1"),), replaced=(Task("worker", 0, "x:1"),)
    )

    assert changed(JOBS, change) == {"ps": {0: "p0:1", 1: "p1:1"}, "worker": {0: "x:1"}}
    assert JOBS["worker"][0] == "w0:1"


def test_two_changes_are_told_as_one():
    """What was made first is told first; what is refused is what the later plan refuses."""
    first = Change(7, added=(Task("worker", 2, "w2:1"),), refused=planned({"worker": {}}).refused)
    second = Change(8, removed=(Task("worker", 2, "w2:1"),), replaced=(Task("ps", 0, "p:2"),))

    assert joined(first, second) == Change(8, first.added, second.removed, second.replaced)
