"""What only the operator can know is read from the status as it was written, and evidence is told from reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfcluster_operator.model import ledger
from tfcluster_operator.model.ledger import Failing, JobRecord, LastRestart, Ledger, Lost, Verdict

AT = 1_800_000_000.123


def write(known: Ledger) -> dict:
    """Spell a ledger as the status does."""
    conditions = []
    if known.verdict is not None:
        verdict = known.verdict
        condition = {"type": verdict.kind, "status": "True", "reason": verdict.reason, "message": verdict.message}
        conditions = [{"type": "Ready", "status": "False"}, condition]
    jobs = {name: ledger.job_fields(record) for name, record in known.jobs.items()}
    internal = {ledger.INTERNAL: ledger.internal_fields(known)}
    return {**ledger.cluster_fields(known), "jobs": jobs, **internal, "conditions": conditions}


FULL = Ledger(
    started_at=AT,
    finished_at=AT + 60,
    restarts=3,
    verdict=Verdict("Failed", "TaskFailed", "worker-1 failed"),
    last_restart=LastRestart("worker-1", "OOMKilled", 137, "killed", AT + 5),
    jobs={
        "worker": JobRecord(
            restarts=2,
            replaced=4,
            incarnation=1,
            in_row=2,
            restart_at=AT + 9,
            completed=frozenset({0, 1, 2, 7}),
            started=frozenset({3}),
            counted=frozenset({"uid-b", "uid-a"}),
            failing={3: Failing(2, AT + 7), 10: Failing(1, AT)},
        ),
        "ps": JobRecord(),
    },
)


@pytest.mark.parametrize(
    "known", [Ledger(), FULL, replace(FULL, last_restart=replace(FULL.last_restart, exit_code=None))]
)
def test_ledger_is_read_as_it_was_written(known):
    """The status holds the whole ledger, to the millisecond."""
    assert ledger.read(write(known)) == known


def test_what_never_happened_is_not_written():
    """A cluster without a past has no times, no indices and no pods in its status."""
    assert ledger.cluster_fields(Ledger()) == {"restarts": 0}
    assert ledger.job_fields(JobRecord()) == {"restarts": 0, "replaced": 0}
    assert ledger.internal_fields(Ledger(jobs={"worker": JobRecord(restarts=3)})) == {"jobs": {}}


def test_public_fields_decide_nothing_where_there_are_internal_ones():
    """What somebody writes beside the public counts is no evidence."""
    status = write(Ledger(jobs={"worker": JobRecord(restarts=1)}))
    status["jobs"]["worker"]["completedIndexes"] = "0-9"

    assert ledger.read(status).of("worker") == JobRecord(restarts=1)


@pytest.mark.parametrize(
    "status",
    [
        {"startTime": "yesterday", "completionTime": 7, "lastRestart": None, "jobs": None, "conditions": None},
        {"restarts": None, "conditions": [{"type": "Failed", "status": "False", "reason": "TaskFailed"}]},
        {"conditions": [{"type": "Ready", "status": "True", "reason": "AllTasksReady"}]},
    ],
)
def test_what_is_malformed_counts_as_never_happened(status):
    """A status that somebody spoiled is no crash and no verdict."""
    assert ledger.read(status) == Ledger()


def test_verdict_knows_by_which_generation_it_was_judged():
    """The condition's observedGeneration is read with it; it makes no other verdict."""
    condition = {"type": "Succeeded", "status": "True", "reason": "R", "message": "M", "observedGeneration": 4}
    verdict = ledger.read({"conditions": [condition]}).verdict

    assert verdict is not None
    assert (verdict.generation, verdict) == (4, Verdict("Succeeded", "R", "M"))


@pytest.mark.parametrize(
    ("indices", "text"),
    [(set(), ""), ({0}, "0"), ({0, 1}, "0-1"), ({0, 1, 2, 3, 5}, "0-3,5"), ({9, 10, 12}, "9-10,12"), ({2, 4}, "2,4")],
)
def test_indices_are_spelled_as_indexed_jobs_do(indices, text):
    """Neighbours become one range, in numerical order."""
    assert ledger.write_indices(indices) == text
    assert ledger.read_indices(text) == indices


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        (None, set()),
        ("x", set()),
        ("1-x,3", {3}),
        ("-4", set()),
        ("3-1", set()),
        ("0-9999999", set()),
        ("5,,6", {5, 6}),
    ],
)
def test_indices_that_are_none_are_left_out(text, indices):
    """What anybody wrote into the status is read without harm, and a huge range costs nothing."""
    assert ledger.read_indices(text) == indices


BEFORE = Ledger(
    restarts=1, jobs={"worker": JobRecord(completed=frozenset({0}), counted=frozenset({"a"}), incarnation=1)}
)


@pytest.mark.parametrize(
    "changes",
    [
        {"completed": frozenset({0, 1})},
        {"counted": frozenset({"a", "b"})},
        {"counted": frozenset({"b"})},
        {"incarnation": 2},
    ],
)
def test_new_evidence_of_a_job_tells_more(changes):
    """A completed task, a counted pod and a restart of the scope are written before a pod goes."""
    assert BEFORE.with_job("worker", **changes).tells_more_than(BEFORE)


def test_new_evidence_of_the_cluster_tells_more():
    """So are a verdict and a restart."""
    assert replace(BEFORE, restarts=2).tells_more_than(BEFORE)
    assert replace(BEFORE, verdict=Verdict("Failed", "R", "M")).tells_more_than(BEFORE)
    assert BEFORE.tells_more_than(Ledger())
    assert BEFORE.with_job("worker", replaced=9).tells_more_than(BEFORE)


@pytest.mark.parametrize(
    "changes",
    [
        {"completed": frozenset()},
        {"counted": frozenset()},
        {"started": frozenset({4})},
        {"lost": {3: Lost("uid", 1)}},
        {"restart_at": 1.0},
    ],
)
def test_report_of_a_job_tells_no_more(changes):
    """What a crash may lose, or what shrank, costs no write before the actions."""
    assert not BEFORE.with_job("worker", **changes).tells_more_than(BEFORE)


def test_rest_of_a_suspended_cluster_tells_more():
    """That the counts are zero is written before the pods go: a resumed cluster starts clean over every crash."""
    running = replace(BEFORE, started_at=5.0)

    assert replace(running, started_at=0.0, restarts=0, jobs={}).tells_more_than(running)
    assert not replace(running, started_at=6.0).tells_more_than(running)


def test_same_tells_no_more():
    """A ledger tells no more than itself, nor does the time of the start."""
    assert not BEFORE.tells_more_than(BEFORE)
    assert not replace(BEFORE, started_at=5.0).tells_more_than(BEFORE)
    assert not replace(BEFORE, verdict=Verdict("Failed", "R", "M", 3)).tells_more_than(
        replace(BEFORE, verdict=Verdict("Failed", "R", "M"))
    )


def test_task_awaits_its_retry_until_its_pod_is_made():
    """A task that failed waits; one whose pod was started again does not, nor does one that never failed."""
    record = JobRecord(started=frozenset({1}), failing={0: Failing(1, AT), 1: Failing(2, AT)})

    assert [record.awaits_retry(index) for index in (0, 1, 2)] == [Failing(1, AT), None, None]


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1970-01-01T00:00:00.000Z"), (AT, "2027-01-15T08:00:00.123Z")])
def test_times_have_milliseconds(seconds, text):
    """A deadline counted from whole seconds would be a second off."""
    assert ledger.timestamp(seconds) == text
