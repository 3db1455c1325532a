"""The operator's own record is read from the status as it was written; evidence is distinguished from reports."""

from dataclasses import replace

import pytest
from msgspec import structs

from tfcluster_operator.declaration import ledger
from tfcluster_operator.declaration.ledger import Failing, GaveUp, JobRecord, LastRestart, Ledger, Lost, Verdict

AT = 1_800_000_000.123


def write(known: Ledger) -> dict:
    conditions = []
    if known.verdict is not None:
        verdict = known.verdict
        condition = {"type": verdict.kind, "status": "True", "reason": verdict.reason, "message": verdict.message}
        conditions = [{"type": "Ready", "status": "False"}, condition]
    jobs = {name: ledger.job_fields(record) for name, record in known.jobs.items()}
    internal = {ledger.INTERNAL: ledger.internal_fields(known)}
    return {**ledger.cluster_fields(known), "jobs": jobs, **internal, "conditions": conditions}


WORKER = JobRecord(
    restarts=2,
    replaced=4,
    incarnation=1,
    in_row=2,
    restart_at=AT + 9,
    completed=frozenset({0, 1, 2, 7}),
    started=frozenset({3}),
    counted=frozenset({"uid-b", "uid-a"}),
    failing={3: Failing(2, AT + 7), 10: Failing(1, AT)},
)
FULL = Ledger(
    started_at=AT,
    finished_at=AT + 60,
    restarts=3,
    verdict=Verdict("Failed", "TaskFailed", "worker-1 failed"),
    last_restart=LastRestart("worker-1", "OOMKilled", 137, "killed", ledger.timestamp(AT + 5)),
    jobs={"worker": WORKER, "ps": JobRecord()},
    granted={"worker": 2},
    regrants=3,
    gangs={"demo.0": AT},
    gave_up=GaveUp(7, "no room"),
)


@pytest.mark.parametrize(
    "known", [Ledger(), FULL, replace(FULL, last_restart=structs.replace(FULL.last_restart, exit_code=None))]
)
def test_ledger_is_read_as_it_was_written(known):
    assert ledger.read(write(known)) == known


def test_what_never_happened_is_not_written():
    assert ledger.cluster_fields(Ledger()) == {"restarts": 0}
    assert ledger.job_fields(JobRecord()) == {"restarts": 0, "disruptions": 0}
    assert ledger.internal_fields(Ledger(jobs={"worker": JobRecord(restarts=3)})) == {"jobs": {}}


def test_public_fields_decide_nothing_where_there_are_internal_ones():
    status = write(Ledger(jobs={"worker": JobRecord(restarts=1)}))
    status["jobs"]["worker"]["completed"] = "0-9"
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
    assert ledger.read(status) == Ledger()


def test_verdict_keeps_its_observed_generation():
    condition = {"type": "Succeeded", "status": "True", "reason": "R", "message": "M", "observedGeneration": 4}
    verdict = ledger.read({"conditions": [condition]}).verdict
    assert verdict is not None
    assert (verdict.generation, verdict) == (4, Verdict("Succeeded", "R", "M"))


@pytest.mark.parametrize(
    ("indices", "text"),
    [(set(), ""), ({0}, "0"), ({0, 1}, "0-1"), ({0, 1, 2, 3, 5}, "0-3,5"), ({9, 10, 12}, "9-10,12"), ({2, 4}, "2,4")],
)
def test_indices_are_spelled_as_indexed_jobs_do(indices, text):
    assert ledger.write_indices(indices) == text
    assert ledger.read_indices(text) == indices


@pytest.mark.parametrize("text", [None, "x", "1-x", "-4", "3-1", "0-9999999", ",,"])
def test_invalid_indices_are_ignored(text):
    """Any text in the status is read without harm, and a huge range is cheap."""
    assert ledger.read_indices(text) == set()
    assert ledger.read_indices(f"5,{text or ''},6") == {5, 6}


KNOWN = JobRecord(completed=frozenset({0}), counted=frozenset({"a"}), incarnation=1)
BEFORE = Ledger(restarts=1, jobs={"worker": KNOWN})
FAILED, STARTED = replace(BEFORE, verdict=Verdict("Failed", "R", "M")), replace(BEFORE, started_at=5.0)


@pytest.mark.parametrize(
    ("known", "changes", "before"),
    [
        (BEFORE, {"completed": frozenset({0, 1})}, BEFORE),
        (BEFORE, {"counted": frozenset({"a", "b"})}, BEFORE),
        (BEFORE, {"counted": frozenset({"b"})}, BEFORE),
        (BEFORE, {"incarnation": 2}, BEFORE),
        (BEFORE, {"lost": {3: Lost("uid", 1)}}, BEFORE),
        (replace(BEFORE, restarts=2), {}, BEFORE),
        (FAILED, {}, BEFORE),
        (replace(BEFORE, gave_up=GaveUp(1, "no room")), {}, BEFORE),
        (BEFORE, {}, Ledger()),
        (replace(STARTED, started_at=0.0, restarts=0, jobs={}), {}, STARTED),
    ],
)
def test_new_evidence_is_written_first(known, changes, before):
    assert (known.with_job("worker", **changes) if changes else known).holds_evidence(before)


@pytest.mark.parametrize(
    ("known", "changes", "before"),
    [
        (BEFORE, {"completed": frozenset()}, BEFORE),
        (BEFORE, {"counted": frozenset()}, BEFORE),
        (BEFORE, {"started": frozenset({4})}, BEFORE),
        (BEFORE, {"lost": {3: Lost("", 1)}}, BEFORE),
        (BEFORE, {"restart_at": 1.0}, BEFORE),
        (BEFORE, {"replaced": 9}, BEFORE),
        (BEFORE, {}, BEFORE),
        (STARTED, {}, BEFORE),
        (replace(STARTED, started_at=6.0), {}, STARTED),
        (replace(BEFORE, verdict=Verdict("Failed", "R", "M", 3)), {}, FAILED),
    ],
)
def test_recoverable_or_removed_evidence_is_not_written_first(known, changes, before):
    """A part that a crash can lose, or that shrank, is not written before the actions."""
    assert not known.with_job("worker", **changes).holds_evidence(before)


def test_task_awaits_its_retry_until_its_pod_is_created():
    record = JobRecord(started=frozenset({1}), failing={0: Failing(1, AT), 1: Failing(2, AT)})
    assert [record.awaits_retry(index) for index in (0, 1, 2)] == [Failing(1, AT), None, None]


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1970-01-01T00:00:00.000Z"), (AT, "2027-01-15T08:00:00.123Z")])
def test_times_have_milliseconds(seconds, text):
    """A deadline counted from whole seconds would be a second off."""
    assert ledger.timestamp(seconds) == text
