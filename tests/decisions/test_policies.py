"""Policies: how a task or a cluster ended, and when it is restarted."""

from dataclasses import replace

import pytest
from in_memory import NOW, make_cluster
from observed_pods import ended, pod

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.ledger import Failing, JobRecord, Ledger, Verdict
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life.stock import (
    count_restart,
    judge_failure,
    judge_success,
    pause,
    pause_before_replacing,
    scope_of,
)
from tfcluster_operator.objects.pod import Ending, Exit, Noted, ending_of, name_of, words_for

# --- ending


LATE = {"phase": "Failed", "reason": "DeadlineExceeded"}


@pytest.mark.parametrize(
    ("what", "ending"),
    [
        (pod(), None),
        (pod(phase="Pending", ready=False), None),
        (pod(disrupted=True), None),
        (pod(phase="Failed"), Ending.FAILED),
        (pod(phase="Succeeded"), Ending.SUCCEEDED),
        (pod(phase="Failed", disrupted=True), Ending.DISRUPTED),
        (ended(0), Ending.SUCCEEDED),
        (ended(0, phase="Running"), Ending.SUCCEEDED),
        (ended(0, phase="Failed"), Ending.SUCCEEDED),
        (ended(0, disrupted=True), Ending.DISRUPTED),
        (ended(1), Ending.FAILED),
        (ended(1, phase="Running"), Ending.FAILED),
        (ended(3, phase="Succeeded"), Ending.FAILED),
        (ended(1, disrupted=True), Ending.DISRUPTED),
        # The template's activeDeadlineSeconds has expired: the exit code after SIGTERM decides nothing.
        (pod(**LATE, exit=Exit(0, "Completed")), Ending.FAILED),
        (pod(**LATE, exit=Exit(143, "Completed")), Ending.FAILED),
    ],
)
def test_disruption_takes_precedence_over_the_exit_code(what, ending):
    assert ending_of(what) is ending


@pytest.mark.parametrize(("ended_first", "ending"), [(True, Ending.FAILED), (False, None)])
def test_end_counts_only_before_the_deletion_was_asked_for(ended_first, ending):
    noted = Noted(since=NOW - 10, ended_at=NOW, leaving_since=NOW, ended_first=ended_first)
    assert ending_of(ended(1, leaving=NOW, noted=noted)) is ending


# --- what the operator records of a pod


ASKED = {"leaving": 1.0, "noted": Noted()}


@pytest.mark.parametrize(
    ("sights", "noted"),
    [
        ([pod(noted=Noted())], Noted(since=10.0)),
        ([pod(noted=Noted())] * 2, Noted(since=10.0)),
        ([pod(noted=Noted()), ended(1, noted=Noted())], Noted(since=10.0, ended_at=20.0, ended_first=True)),
        (
            [pod(noted=Noted()), ended(1, noted=Noted()), ended(1, **ASKED), ended(1, **ASKED)],
            Noted(since=10.0, ended_at=20.0, leaving_since=30.0, ended_first=True),
        ),
        ([pod(**ASKED), ended(1, **ASKED)], Noted(since=10.0, ended_at=20.0, leaving_since=1.0)),
    ],
    ids=["seen", "seen again", "ended", "ended and then deleted", "deleted and then ended"],
)
def test_first_sight_of_each_thing_is_noted(sights, noted):
    """By our own clock; a pod whose termination was observed before its end was deleted, it did not fail."""
    known = None
    for count, sight in enumerate(sights, 1):
        known = sight.seen(known, 10.0 * count)
    assert known.noted == noted


@pytest.mark.parametrize(
    ("asked", "known", "since"),
    [(NOW - 60, False, NOW - 60), (NOW - 60, True, NOW), (NOW + 60, False, NOW), (NOW - 200_000, False, NOW)],
    ids=["of another operator's time", "seen before", "in the future", "too long ago"],
)
def test_time_since_a_deletion_outlives_an_operator(asked, known, since):
    """The time of the deletion is the API server's if it is plausible; otherwise our first observation."""
    before = pod(noted=Noted()).seen(None, NOW - 100) if known else None
    assert pod(leaving=asked, noted=Noted()).seen(before, NOW).noted.leaving_since == since


@pytest.mark.parametrize(
    ("what", "name", "words"),
    [
        (ended(1), "Error", "exit code 1"),
        (ended(1, message="no such file"), "Error", "exit code 1: no such file"),
        (ended(1, reason="Completed"), "Error", "exit code 1"),
        (ended(1, reason=""), "Error", "exit code 1"),
        (ended(128, reason="StartError"), "StartError", "exit code 128, StartError"),
        (ended(129), "KilledBySignal", "killed by signal 1 (exit code 129)"),
        (ended(137, message="step 7"), "KilledBySignal", "killed by signal 9 (exit code 137)"),
        (ended(139, message="bus error"), "KilledBySignal", "killed by signal 11 (exit code 139): bus error"),
        (ended(192), "KilledBySignal", "killed by signal 64 (exit code 192)"),
        (ended(193), "Error", "exit code 193"),
        (ended(255), "Error", "exit code 255"),
        (ended(137, reason="OOMKilled"), "OOMKilled", "OOMKilled: it used more memory than its limit (exit code 137)"),
        (pod(phase="Failed"), "Failed", "no exit code is known"),
        (pod(**LATE), "DeadlineExceeded", "DeadlineExceeded"),
        (pod(**LATE, exit=Exit(143, "Completed")), "DeadlineExceeded", "exit code 143, DeadlineExceeded"),
    ],
)
def test_failures_have_names_and_words(what, name, words):
    assert name_of(what.exit, what.reason) == name
    assert words_for(what) == words


# --- success


PAIRED, SERVED, DATA = {"chief": 1, "worker": 2}, {"worker": 2, "ps": 1}, {"ps": 1, "dw": 1, "evaluator": 1}
ANY, EVALUATED = {"tasks": "Any"}, {"jobs": ["evaluator"]}
BOTH = {"jobs": ["a", "b"]}


@pytest.mark.parametrize(
    ("jobs", "policy", "completed", "message"),
    [
        (PAIRED, None, {"chief": {0}}, "the task of job chief ended with exit code 0"),
        (PAIRED, None, {"worker": {0, 1}}, None),
        (SERVED, None, {"worker": {0, 1}}, "every task of job worker ended with exit code 0"),
        (SERVED, None, {"worker": {1}}, None),
        (DATA, None, {"ps": {0}, "dw": {0}}, "every task of jobs dw, ps ended with exit code 0"),
        (DATA, None, {"ps": {0}, "evaluator": {0}}, None),
        ({"chief": 0, "worker": 1}, None, {}, None),
        ({"worker": 2}, ANY, {"worker": {1}}, "1 of 2 tasks of job worker ended with exit code 0"),
        ({"worker": 2}, ANY, {}, None),
        ({"chief": 1, "evaluator": 1}, EVALUATED, {"chief": {0}}, None),
        (DATA, EVALUATED, {"evaluator": {0}}, "the task of job evaluator ended with exit code 0"),
        ({"a": 1, "b": 1}, {**BOTH, **ANY}, {"b": {0}}, "1 of 2 tasks of jobs a, b ended with exit code 0"),
        ({"a": 1, "b": 0}, BOTH, {"a": {0}}, "the task of jobs a, b ended with exit code 0"),
    ],
)
def test_success_is_exactly_by_policy(jobs, policy, completed, message):
    """All or any tasks of the named jobs; by default the chief's, else the workers', else all except an evaluator's."""
    cluster = make_cluster(jobs, **({"successPolicy": policy} if policy else {}))
    known = Ledger(jobs={job: JobRecord(completed=frozenset(of)) for job, of in completed.items()})
    assert judge_success(cluster, known) == (Verdict("Succeeded", "TasksSucceeded", message) if message else None)


# --- failure
@pytest.mark.parametrize(
    ("declared", "restarts", "what", "reason"),
    [
        ({"restartPolicy": "OnFailure"}, 0, ended(1), None),
        ({"restartPolicy": "OnFailure"}, 0, ended(137), None),
        ({"restartPolicy": "Always"}, 0, ended(1), None),
        ({"restartPolicy": "Never"}, 0, ended(1), "TaskFailed"),
        ({"restartPolicy": "Never"}, 0, ended(137), "TaskFailed"),
        ({"restartPolicy": "Never"}, 0, pod(phase="Failed"), "TaskFailed"),
        ({"restartPolicy": "ExitCode"}, 0, ended(1), "PermanentExitCode"),
        ({"restartPolicy": "ExitCode"}, 0, ended(127), "PermanentExitCode"),
        ({"restartPolicy": "ExitCode"}, 0, ended(128), None),
        ({"restartPolicy": "ExitCode"}, 0, ended(130), None),
        ({"restartPolicy": "ExitCode"}, 0, pod(phase="Failed"), None),
        ({}, 99, ended(9), None),
        ({"backoffLimit": 0}, 0, ended(9), "BackoffLimitExceeded"),
        ({"backoffLimit": 1}, 0, ended(9), None),
        ({"backoffLimit": 1}, 1, ended(9), "BackoffLimitExceeded"),
        ({"backoffLimit": 3}, 2, ended(9), None),
        ({"backoffLimit": 3}, 3, ended(9), "BackoffLimitExceeded"),
    ],
)
def test_failure_is_judged_by_the_restart_policy_and_the_limit(declared, restarts, what, reason):
    """ExitCode restarts from 128 up and if no code is known; the failure after the last restart is final."""
    limit = {key: value for key, value in declared.items() if key == "backoffLimit"}
    cluster = make_cluster({"worker": {key: value for key, value in declared.items() if key not in limit}}, **limit)
    verdict = judge_failure(cluster, Task(cluster.jobs[0], 0), what, Ledger(restarts=restarts))
    assert (verdict and (verdict.kind, verdict.reason)) == (reason and ("Failed", reason))
    words = f"{restarts} of {limit['backoffLimit']} restarts" if limit else words_for(what)
    assert verdict is None or ("worker-0" in verdict.message and words in verdict.message)


# --- restart
@pytest.mark.parametrize(("scope", "jobs"), [("Task", ()), ("Job", ("worker",)), ("Cluster", ("ps", "worker"))])
def test_scope_is_the_task_the_job_or_the_cluster(scope, jobs):
    cluster = make_cluster({"worker": {"replicas": 2, "restartScope": scope}, "ps": 1})
    assert tuple(job.name for job in scope_of(cluster, cluster.job("worker"))) == jobs


def test_failed_task_is_counted_alone_and_its_back_off_starts_then():
    cluster = make_cluster({"worker": 2, "ps": 1})
    record = JobRecord(restarts=2, started=frozenset({0, 1}), completed=frozenset({1}), counted=frozenset({"b"}))
    before = Ledger(restarts=4, jobs={"worker": record})
    failed = ended(3, message="oh", noted=Noted(since=NOW - 900, ended_at=NOW - 100, ended_first=True))
    after = count_restart(cluster, Task(cluster.job("worker"), 0), failed, before, NOW)
    record = after.of("worker")
    assert (after.restarts, record.restarts, record.counted) == (5, 3, {"b", "uid-1"})
    assert (record.started, record.completed, record.incarnation) == ({1}, {1}, 0)
    assert after.of("ps") == JobRecord()
    assert record.failing == {0: Failing(1, NOW + pause(0, seed="uid-1"))}
    last = after.last_restart
    found = (last.task, last.reason, last.exit_code, last.message, last.time)
    assert found == ("worker-0", "Error", 3, "exit code 3: oh", NOW)


@pytest.mark.parametrize(("since", "in_row"), [(599.0, 4), (600.0, 1), (5000.0, 1)])
@pytest.mark.parametrize("scope", ["Task", "Job"])
def test_failure_long_after_the_last_try_is_the_first_again(since, in_row, scope):
    cluster = make_cluster({"worker": {"replicas": 2, "restartScope": scope}})
    failing = {0: Failing(3, NOW - since), 1: Failing(7, NOW)}
    before = Ledger(jobs={"worker": JobRecord(in_row=3, restart_at=NOW - since, failing=failing)})
    record = count_restart(cluster, Task(cluster.jobs[0], 0), ended(1), before, NOW).of("worker")
    wait = pause(in_row - 1, seed="uid-1")
    if scope == "Task":
        assert record.failing == {0: Failing(in_row, NOW + wait), 1: Failing(7, NOW)}
    else:
        assert (record.in_row, record.restart_at, record.failing) == (in_row, NOW + wait, {})


def test_scope_starts_over_together():
    cluster = make_cluster({"worker": {"replicas": 2, "restartScope": "Cluster"}, "ps": 1})
    used = JobRecord(completed=frozenset({0}), started=frozenset({1}), counted=frozenset({"x"}), replaced=5)
    used = replace(used, incarnation=2, restart_at=NOW - 10)
    before = Ledger(jobs={"worker": replace(used, in_row=1), "ps": replace(used, in_row=3)})
    after = count_restart(cluster, Task(cluster.job("worker"), 1), ended(1), before, NOW)
    assert after.restarts == 1
    assert [after.of(job).restarts for job in ("worker", "ps")] == [1, 0]
    for job in ("worker", "ps"):
        record = after.of(job)
        assert (record.incarnation, record.in_row, record.replaced) == (3, 4, 5)
        assert record.restart_at == NOW + pause(3, seed="uid-1")
        assert not record.completed | record.started | record.counted


@pytest.mark.parametrize(("failures", "rule"), [(0, 1.0), (1, 2.0), (5, 32.0), (8, 256.0), (9, 300.0), (10_000, 300.0)])
def test_back_off_doubles_and_is_bounded(failures, rule):
    drawn = {pause(failures, seed=f"uid-{n}") for n in range(300)}
    assert all(rule <= pause <= rule * 1.25 for pause in drawn)
    assert len(drawn) > 100
    assert max(drawn) - min(drawn) > 0.2 * rule
    assert pause(failures, seed="uid-7") in drawn, "a plan can be made twice"


@pytest.mark.parametrize(
    ("attempt", "lasted", "rule", "next_attempt"),
    [(0, 5, None, 1), (1, 5, 1.0, 2), (3, 5, 4.0, 4), (3, 600, None, 1), (3, 599, 4.0, 4)],
)
def test_pod_that_is_turned_away_again_waits_longer(attempt, lasted, rule, next_attempt):
    noted = Noted(since=NOW - lasted, ended_at=NOW, ended_first=True)
    what = ended(1, disrupted=True, noted=noted, annotations={naming.ANNOTATION_ATTEMPT: str(attempt)})
    pause, then = pause_before_replacing(what)
    assert then == next_attempt
    assert pause == 0.0 if rule is None else rule <= pause <= rule * 1.25
