"""Each policy of a cluster's life: what it decides, and the neighbours for which it must not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from in_memory import CLUSTER_UID, NOW, make_cluster

from tfcluster_operator.model import naming
from tfcluster_operator.model.ledger import Failing, JobRecord, Ledger, Verdict
from tfcluster_operator.model.observed import Exit, Meta, Noted, Observed, ObservedPod
from tfcluster_operator.model.policies import clean_up, deadline, restart, rollout, scale_down, start_order, termination
from tfcluster_operator.model.policies.ending import Ending, ending_of, name_of, words_for
from tfcluster_operator.model.policies.failure import judge_failure
from tfcluster_operator.model.policies.success import judge_success
from tfcluster_operator.model.roster import call_roll
from tfcluster_operator.model.spec import Task


def pod(name="demo-worker-0", *, uid="uid-1", owner=CLUSTER_UID, annotations=None, leaving=0.0, grace=30.0, **fields):
    """Make a pod that runs and is ready; ``leaving`` is when we first saw that its deletion was asked for."""
    meta = Meta(
        name=name,
        namespace="default",
        uid=uid,
        version=1,
        owner_uid=owner,
        owner_name="demo",
        labels={},
        annotations=annotations or {},
        terminating=leaving > 0,
        grace=grace if leaving else 0.0,
        asked_to_go_at=leaving,
    )
    running = {
        "phase": "Running",
        "ready": True,
        "disrupted": False,
        "reason": "",
        "node": "node",
        "devices": None,
        "trouble": "",
        "noted": Noted(since=NOW - 10, leaving_since=leaving),
    }
    return ObservedPod(meta=meta, **{**running, **fields})


def ended(code=1, *, reason="Error", message="", **fields):
    """Make a pod whose program has ended."""
    end = {"exit": Exit(code, reason, message), "ready": False}
    return pod(**{**end, "phase": "Succeeded" if code == 0 else "Failed", "at_rest": True, **fields})


def roster(cluster, *pods, known=None):
    """Call the roll of a cluster that has these pods."""
    return call_roll(cluster, Observed(pods={one.meta.name: one for one in pods})).completed_by(known or Ledger())


# --- ending


@pytest.mark.parametrize(
    ("what", "ending"),
    [
        (pod(), None),
        (pod(phase="Pending", ready=False), None),
        (ended(0), Ending.SUCCEEDED),
        (ended(0, phase="Running"), Ending.SUCCEEDED),
        (ended(1), Ending.FAILED),
        (ended(1, phase="Running"), Ending.FAILED),
        (ended(0, phase="Failed"), Ending.SUCCEEDED),
        (ended(3, phase="Succeeded"), Ending.FAILED),
        (pod(phase="Failed"), Ending.FAILED),
        (pod(phase="Succeeded"), Ending.SUCCEEDED),
        (ended(1, disrupted=True), Ending.DISRUPTED),
        (ended(0, disrupted=True), Ending.DISRUPTED),
        (pod(phase="Failed", disrupted=True), Ending.DISRUPTED),
        (pod(disrupted=True), None),
    ],
)
def test_end_is_the_programs_unless_somebody_took_the_pod(what, ending):
    """The main container's exit code decides, whatever the phase; a disruption says nothing of the program."""
    assert ending_of(what) is ending


@pytest.mark.parametrize(("ended_first", "ending"), [(True, Ending.FAILED), (False, None)])
def test_end_counts_only_before_the_deletion_was_asked_for(ended_first, ending):
    """What a program makes of SIGTERM says nothing of it."""
    noted = Noted(since=NOW - 10, ended_at=NOW, leaving_since=NOW, ended_first=ended_first)

    assert ending_of(ended(1, leaving=NOW, noted=noted)) is ending


# --- what we note of a pod


def test_first_sight_of_each_thing_is_noted():
    """When we first saw a pod, its end, and its deletion, by our own clock; what is seen again changes nothing."""
    first = pod(noted=Noted()).seen(None, 10.0)
    again = pod(noted=Noted()).seen(first, 20.0)
    over = ended(1, noted=Noted()).seen(again, 30.0)
    leaving = ended(1, leaving=1.0, noted=Noted()).seen(over, 40.0)

    assert [first.noted, again.noted] == [Noted(since=10.0)] * 2
    assert over.noted == Noted(since=10.0, ended_at=30.0, ended_first=True)
    assert leaving.noted == Noted(since=10.0, ended_at=30.0, leaving_since=40.0, ended_first=True)
    assert leaving.seen(leaving, 50.0) == leaving


def test_end_after_the_deletion_was_not_first():
    """A pod that was seen to terminate before it was seen to have ended was taken away."""
    leaving = pod(leaving=1.0, noted=Noted()).seen(None, 10.0)

    assert ended(1, leaving=1.0, noted=Noted()).seen(leaving, 20.0).noted == Noted(
        since=10.0, ended_at=20.0, leaving_since=1.0
    )


@pytest.mark.parametrize(
    ("asked", "known", "since"),
    [(NOW - 60, False, NOW - 60), (NOW - 60, True, NOW), (NOW + 60, False, NOW), (NOW - 200_000, False, NOW)],
    ids=["of another operator's time", "seen before", "in the future", "too long ago"],
)
def test_time_since_a_deletion_outlives_an_operator(asked, known, since):
    """What is first seen to leave was asked to by the API server's clock, if that can be; else our own counts."""
    before = pod(noted=Noted()).seen(None, NOW - 100) if known else None

    assert pod(leaving=asked, noted=Noted()).seen(before, NOW).noted.leaving_since == since


def test_end_and_deletion_that_are_first_seen_together_prove_nothing():
    """Unless the pod's own status does."""
    together = ended(1, leaving=1.0, noted=Noted()).seen(None, 10.0)
    proved = replace(ended(1, leaving=1.0, noted=Noted()), generation=2, told_of=1).seen(None, 10.0)

    assert (together.noted.ended_first, proved.noted.ended_first) == (False, True)


@pytest.mark.parametrize(
    ("what", "name", "words"),
    [
        (ended(1), "Error", "exit code 1"),
        (ended(1, message="no such file"), "Error", "exit code 1: no such file"),
        (ended(1, reason="Completed"), "Error", "exit code 1"),
        (ended(1, reason=""), "Error", "exit code 1"),
        (ended(128, reason="StartError"), "StartError", "exit code 128, StartError"),
        (ended(129), "KilledBySignal", "killed by signal 1 (exit code 129)"),
        (ended(137), "KilledBySignal", "killed by signal 9 (exit code 137)"),
        (ended(192), "KilledBySignal", "killed by signal 64 (exit code 192)"),
        (ended(193), "Error", "exit code 193"),
        (ended(255), "Error", "exit code 255"),
        (ended(137, reason="OOMKilled"), "OOMKilled", "OOMKilled: it used more memory than its limit (exit code 137)"),
        (pod(phase="Failed"), "Failed", "no exit code is known"),
        (pod(phase="Failed", reason="DeadlineExceeded"), "DeadlineExceeded", "DeadlineExceeded"),
    ],
)
def test_failures_have_names_and_words(what, name, words):
    """A signal and the memory limit have their own names; the last line of the program is told."""
    assert name_of(what.exit, what.reason) == name
    assert words_for(what) == words


# --- success


@pytest.mark.parametrize(
    ("jobs", "policy", "completed", "message"),
    [
        ({"chief": 1, "worker": 2}, None, {"chief": {0}}, "the task of job chief ended with exit code 0"),
        ({"chief": 1, "worker": 2}, None, {"worker": {0, 1}}, None),
        ({"worker": 2, "ps": 1}, None, {"worker": {0, 1}}, "every task of job worker ended with exit code 0"),
        ({"worker": 2, "ps": 1}, None, {"worker": {1}}, None),
        (
            {"ps": 1, "dw": 1, "evaluator": 1},
            None,
            {"ps": {0}, "dw": {0}},
            "every task of jobs dw, ps ended with exit code 0",
        ),
        ({"ps": 1, "dw": 1, "evaluator": 1}, None, {"ps": {0}, "evaluator": {0}}, None),
        ({"chief": 0, "worker": 1}, None, {}, None),
        ({"worker": 2}, {"tasks": "Any"}, {"worker": {1}}, "1 of 2 tasks of job worker ended with exit code 0"),
        ({"worker": 2}, {"tasks": "Any"}, {}, None),
        ({"chief": 1, "evaluator": 1}, {"jobs": ["evaluator"]}, {"chief": {0}}, None),
        (
            {"chief": 1, "evaluator": 1},
            {"jobs": ["evaluator"]},
            {"evaluator": {0}},
            "the task of job evaluator ended with exit code 0",
        ),
        (
            {"a": 1, "b": 1},
            {"jobs": ["a", "b"], "tasks": "Any"},
            {"b": {0}},
            "1 of 2 tasks of jobs a, b ended with exit code 0",
        ),
        ({"a": 1, "b": 0}, {"jobs": ["a", "b"]}, {"a": {0}}, "the task of jobs a, b ended with exit code 0"),
    ],
)
def test_success_is_exactly_by_policy(jobs, policy, completed, message):
    """All or any tasks of the named jobs; by default the chief's, else the workers', else all but an evaluator's."""
    cluster = make_cluster(jobs, **({"successPolicy": policy} if policy else {}))
    known = Ledger(jobs={job: JobRecord(completed=frozenset(of)) for job, of in completed.items()})

    verdict = judge_success(cluster, known)

    assert verdict == (Verdict("Succeeded", "TasksSucceeded", message) if message else None)


# --- failure


@pytest.mark.parametrize(
    ("policy", "what", "reason"),
    [
        ("OnFailure", ended(1), None),
        ("OnFailure", ended(137), None),
        ("Always", ended(1), None),
        ("Never", ended(1), "TaskFailed"),
        ("Never", ended(137), "TaskFailed"),
        ("Never", pod(phase="Failed"), "TaskFailed"),
        ("ExitCode", ended(1), "PermanentExitCode"),
        ("ExitCode", ended(127), "PermanentExitCode"),
        ("ExitCode", ended(128), None),
        ("ExitCode", ended(130), None),
        ("ExitCode", pod(phase="Failed"), None),
    ],
)
def test_failure_is_judged_by_the_restart_policy(policy, what, reason):
    """ExitCode restarts from 128 up and where no code is known; Never never does."""
    cluster = make_cluster({"worker": {"restartPolicy": policy}})

    verdict = judge_failure(cluster, Task(cluster.jobs[0], 0), what, Ledger())

    assert (verdict.kind, verdict.reason) == ("Failed", reason) if reason else verdict is None
    assert verdict is None or ("worker-0" in verdict.message and words_for(what) in verdict.message)


@pytest.mark.parametrize(
    ("limit", "restarts", "over"),
    [(None, 99, False), (0, 0, True), (1, 0, False), (1, 1, True), (3, 2, False), (3, 3, True)],
)
def test_limit_allows_exactly_so_many_restarts(limit, restarts, over):
    """The failure after the last allowed restart ends the cluster, and the one before does not."""
    cluster = make_cluster({"worker": 1}, **({"backoffLimit": limit} if limit is not None else {}))

    verdict = judge_failure(cluster, Task(cluster.jobs[0], 0), ended(9), Ledger(restarts=restarts))

    assert (verdict is not None) is over
    if over:
        assert (verdict.reason, f"{restarts} of {limit} restarts" in verdict.message) == ("BackoffLimitExceeded", True)


# --- restart


@pytest.mark.parametrize(("scope", "jobs"), [("Task", ()), ("Job", ("worker",)), ("Cluster", ("ps", "worker"))])
def test_scope_is_the_task_the_job_or_the_cluster(scope, jobs):
    """The jobs whose pods are all replaced are those that the scope says."""
    cluster = make_cluster({"worker": {"replicas": 2, "restartScope": scope}, "ps": 1})

    assert tuple(job.name for job in restart.scope_of(cluster, cluster.job("worker"))) == jobs


def test_failed_task_is_counted_alone():
    """One restart, for the UID of its pod; its neighbours and other jobs know nothing of it."""
    cluster = make_cluster({"worker": 2, "ps": 1})
    before = Ledger(
        restarts=4,
        jobs={
            "worker": JobRecord(
                restarts=2, started=frozenset({0, 1}), completed=frozenset({1}), counted=frozenset({"b"})
            )
        },
    )

    after = restart.count_restart(cluster, Task(cluster.job("worker"), 0), ended(3, message="oh"), before, NOW)

    record = after.of("worker")
    assert (after.restarts, record.restarts, record.counted) == (5, 3, {"b", "uid-1"})
    assert (record.started, record.completed, record.incarnation) == ({1}, {1}, 0)
    assert after.of("ps") == JobRecord()
    assert record.failing == {0: Failing(1, NOW + restart.pause(0, seed="uid-1"))}
    last = after.last_restart
    assert (last.task, last.reason, last.exit_code, last.message, last.time) == (
        "worker-0",
        "Error",
        3,
        "exit code 3: oh",
        NOW,
    )


@pytest.mark.parametrize(("since", "in_row"), [(599.0, 4), (600.0, 1), (5000.0, 1)])
@pytest.mark.parametrize("scope", ["Task", "Job"])
def test_failure_long_after_the_last_try_is_the_first_again(since, in_row, scope):
    """Failures in a row are counted until one comes ten minutes after the last try, for a task and for a scope."""
    cluster = make_cluster({"worker": {"replicas": 2, "restartScope": scope}})
    failing = {0: Failing(3, NOW - since), 1: Failing(7, NOW)}
    before = Ledger(jobs={"worker": JobRecord(in_row=3, restart_at=NOW - since, failing=failing)})

    record = restart.count_restart(cluster, Task(cluster.jobs[0], 0), ended(1), before, NOW).of("worker")

    pause = restart.pause(in_row - 1, seed="uid-1")
    if scope == "Task":
        assert record.failing == {0: Failing(in_row, NOW + pause), 1: Failing(7, NOW)}
    else:
        assert (record.in_row, record.restart_at, record.failing) == (in_row, NOW + pause, {})


def test_scope_starts_over_together():
    """Every job of the scope has a new incarnation, no completed task and one time of its restart; others have not."""
    cluster = make_cluster({"worker": {"replicas": 2, "restartScope": "Cluster"}, "ps": 1})
    used = JobRecord(completed=frozenset({0}), started=frozenset({1}), counted=frozenset({"x"}), replaced=5)
    used = replace(used, incarnation=2, restart_at=NOW - 10)
    before = Ledger(jobs={"worker": replace(used, in_row=1), "ps": replace(used, in_row=3)})

    after = restart.count_restart(cluster, Task(cluster.job("worker"), 1), ended(1), before, NOW)

    assert after.restarts == 1
    assert [after.of(job).restarts for job in ("worker", "ps")] == [1, 0]
    for job in ("worker", "ps"):
        record = after.of(job)
        assert (record.incarnation, record.in_row, record.replaced) == (3, 4, 5)
        assert record.restart_at == NOW + restart.pause(3, seed="uid-1")
        assert not record.completed | record.started | record.counted


def test_pause_counts_from_when_we_count_the_failure():
    """What a node's clock says of the end decides nothing."""
    cluster = make_cluster({"worker": 1})
    noted = Noted(since=NOW - 900, ended_at=NOW - 100, ended_first=True)

    after = restart.count_restart(cluster, Task(cluster.jobs[0], 0), ended(1, noted=noted), Ledger(), NOW)

    assert after.last_restart.time == NOW
    assert after.of("worker").failing[0].retry_at == NOW + restart.pause(0, seed="uid-1")


@pytest.mark.parametrize(("ahead", "believed"), [(-9, -9), (0, 0), (375, 375), (375.5, 0), (1e9, 0)])
def test_time_beyond_every_pause_is_not_believed(ahead, believed):
    """An earlier operator's clock was wrong: the next try is now."""
    assert restart.believed(NOW + ahead, NOW) == NOW + believed


@pytest.mark.parametrize(("failures", "rule"), [(0, 1.0), (1, 2.0), (5, 32.0), (8, 256.0), (9, 300.0), (10_000, 300.0)])
def test_pause_doubles_and_is_bounded(failures, rule):
    """A pause is at least its rule and at most a quarter more, for every pod."""
    drawn = {restart.pause(failures, seed=f"uid-{n}") for n in range(300)}

    assert all(rule <= pause <= rule * 1.25 for pause in drawn)
    assert len(drawn) > 100
    assert max(drawn) - min(drawn) > 0.2 * rule


def test_pause_is_the_same_for_the_same_pod():
    """A plan can be made twice."""
    assert restart.pause(3, seed="uid-7") == restart.pause(3, seed="uid-7")


@pytest.mark.parametrize(
    ("attempt", "lasted", "rule", "next_attempt"),
    [(0, 5, None, 1), (1, 5, 1.0, 2), (3, 5, 4.0, 4), (3, 600, None, 1), (3, 599, 4.0, 4)],
)
def test_pod_that_is_turned_away_again_waits_longer(attempt, lasted, rule, next_attempt):
    """The first disruption costs no pause, the next ones in a row do."""
    noted = Noted(since=NOW - lasted, ended_at=NOW, ended_first=True)
    what = ended(1, disrupted=True, noted=noted, annotations={naming.ANNOTATION_ATTEMPT: str(attempt)})

    pause, then = restart.pause_before_replacing(what)

    assert then == next_attempt
    assert pause == 0.0 if rule is None else rule <= pause <= rule * 1.25


# --- deadline


@pytest.mark.parametrize(
    ("limit", "started", "now", "over"),
    [
        (60, NOW, NOW + 59.9, False),
        (60, NOW, NOW + 60, True),
        (0, NOW, NOW, True),
        (None, NOW, NOW + 1e9, False),
        (60, 0.0, NOW, False),
    ],
)
def test_deadline_counts_from_the_start(limit, started, now, over):
    """A cluster that has not started has no deadline, and one that has none never reaches it."""
    cluster = make_cluster({"worker": 1}, **({"activeDeadlineSeconds": limit} if limit is not None else {}))

    verdict = deadline.judge_deadline(cluster, Ledger(started_at=started), now)

    assert (verdict is not None) is over
    assert not over or (verdict.kind, verdict.reason) == ("Failed", "DeadlineExceeded")


@pytest.mark.parametrize(
    ("spec", "known", "left"),
    [
        ({"activeDeadlineSeconds": 60}, Ledger(started_at=NOW - 10), 50),
        ({"activeDeadlineSeconds": 60}, Ledger(), None),
        ({"ttlSecondsAfterFinished": 60}, Ledger(started_at=NOW - 10), None),
        ({"ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 5}, "finished", 40),
        ({"ttlSecondsAfterFinished": 0}, "finished", -20),
        ({"activeDeadlineSeconds": 60}, "finished", None),
    ],
)
def test_time_left_is_of_the_deadline_or_then_of_the_ttl(spec, known, left):
    """A running cluster has a deadline and no time to live; a finished one the other way round."""
    finished = Ledger(started_at=NOW - 100, finished_at=NOW - 20, verdict=Verdict("Failed", "R", "M"))

    assert (
        deadline.seconds_left(make_cluster({"worker": 1}, **spec), finished if known == "finished" else known, NOW)
        == left
    )


# --- start order


def _awaited(*pods, jobs=None, known=None):
    cluster = make_cluster(jobs or {"ps": 2, "worker": {"startAfter": ["ps"]}})
    known = known or Ledger()
    return start_order.awaited_jobs(roster(cluster, *pods, known=known), cluster.job("worker"), known)


PS = [pod("demo-ps-0", uid="p0"), pod("demo-ps-1", uid="p1")]


def test_job_starts_when_every_earlier_task_is_ready():
    """One that is not ready holds it, and the message says how many are."""
    assert _awaited(*PS) == []
    assert _awaited() == ["ps (0 of 2 ready)"]
    assert _awaited(PS[0]) == ["ps (1 of 2 ready)"]


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": False},
        {"owner": "other"},
        {"annotations": {naming.ANNOTATION_INCARNATION: "1"}},
        {"leaving": NOW},
    ],
)
def test_pod_that_does_not_serve_does_not_count(changes):
    """Neither an unready pod, nor another's, nor one that is being replaced is awaited's end."""
    assert _awaited(PS[0], pod("demo-ps-1", uid="p1", **changes)) == ["ps (1 of 2 ready)"]


def test_completed_task_is_as_good_as_ready():
    """A ps that ended well holds nobody back."""
    assert _awaited(PS[0], known=Ledger(jobs={"ps": JobRecord(completed=frozenset({1}))})) == []


@pytest.mark.parametrize(
    "record", [JobRecord(started=frozenset({0})), JobRecord(failing={0: Failing(1, NOW)}), JobRecord(begun=True)]
)
def test_job_that_has_started_is_not_held_back(record):
    """A ps that starts again later does not stop the workers, not even one that failed meanwhile."""
    assert _awaited(known=Ledger(jobs={"worker": record})) == []


def test_several_jobs_are_awaited():
    """Each that is not ready is named; one without tasks, or that is not declared, is not awaited."""
    jobs = {"ps": 2, "chief": 1, "dw": 0, "worker": {"startAfter": ["chief", "dw", "ps"]}}

    assert _awaited(PS[0], jobs=jobs) == ["chief (0 of 1 ready)", "ps (1 of 2 ready)"]


# --- rollout


def _rollout(strategy, *states, known=None):
    """Plan the rollout of a job whose pods are each "new", "old", or one of these and "down"."""
    cluster = make_cluster({"worker": len(states)}, updateStrategy=strategy)
    job = cluster.jobs[0]
    pods = []
    for index, state in enumerate(states):
        annotations = {naming.ANNOTATION_TEMPLATE_HASH: job.template_hash if "new" in state else "older"}
        leaving = NOW if "leaving" in state else 0.0
        if state != "gone":
            pods.append(
                pod(
                    f"demo-worker-{index}",
                    uid=str(index),
                    annotations=annotations,
                    ready="down" not in state,
                    leaving=leaving,
                )
            )
    found = rollout.rollout_of(roster(cluster, *pods, known=known), job)
    return found, [one.meta.uid for one in rollout.to_replace(cluster, found)]


def rolling(max_unavailable):
    """Declare a rolling update."""
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}}


ROLLING, TWO, HALF = rolling(1), rolling(2), rolling("50%")


@pytest.mark.parametrize(
    ("strategy", "states", "replaced"),
    [
        ({"type": "Recreate"}, ["old", "new", "old down", "old leaving"], ["0", "2"]),
        ({"type": "OnDelete"}, ["old", "old down"], []),
        (ROLLING, ["old", "old", "old"], ["2"]),
        (TWO, ["old", "old", "old"], ["2", "1"]),
        (rolling(9), ["old", "old"], ["1", "0"]),
        (rolling("50%"), ["old"] * 5, ["4", "3"]),
        (rolling("1%"), ["old"] * 5, ["4"]),
        (rolling("100%"), ["old"] * 3, ["2", "1", "0"]),
        ({"type": "RollingUpdate"}, ["old", "old"], ["1"]),
        (ROLLING, ["old", "old", "new"], ["1"]),
        (ROLLING, ["old", "old", "new down"], []),
        (ROLLING, ["old", "old", "gone"], []),
        (ROLLING, ["old", "old", "old leaving"], []),
        (TWO, ["old", "old", "new down"], ["1"]),
        (ROLLING, ["old down", "old", "old"], ["0"]),
        (ROLLING, ["old", "old down", "new down"], ["1"]),
        (TWO, ["old", "old down", "old"], ["2", "1"]),
        (HALF, ["old", "old", "old", "old", "old"], ["4", "3"]),
        (HALF, ["old", "old", "old", "new down"], ["2"]),
        (HALF, ["old"], ["0"]),
        (ROLLING, ["new", "new"], []),
    ],
)
def test_update_strategy_chooses_the_pods(strategy, states, replaced):
    """From the highest index, at most so many down; outdated pods that do not work go anyway."""
    assert _rollout(strategy, *states)[1] == replaced


def test_completed_task_is_never_rolled():
    """It is not run again, and it is not missed either."""
    known = Ledger(jobs={"worker": JobRecord(completed=frozenset({1}))})

    found, replaced = _rollout(ROLLING, "old", "old down", known=known)

    assert replaced == ["0"]
    assert found.unavailable == ()


def test_leaving_pod_of_an_old_template_is_still_old():
    """The rollout is not over before it has gone."""
    found, _ = _rollout(ROLLING, "new", "old leaving")

    assert ([place.task.index for place in found.old], found.outdated) == ([1], ())


def test_pod_of_others_is_not_rolled():
    """It is no pod of the task, so that the task is not at work."""
    cluster = make_cluster({"worker": 1})

    found = rollout.rollout_of(roster(cluster, pod(owner="other")), cluster.jobs[0])

    assert (found.old, [str(place.task) for place in found.unavailable]) == ((), ["worker-0"])


# --- scale-down, clean-up, termination


@pytest.mark.parametrize(
    ("drain", "what", "seconds"),
    [
        (0, pod(), 0),
        (30, pod(), 30),
        (30, pod(annotations={naming.ANNOTATION_SURPLUS_SINCE: str(int(NOW) - 10)}), 20),
        (30, pod(annotations={naming.ANNOTATION_SURPLUS_SINCE: str(int(NOW) - 30)}), 0),
        (30, pod(annotations={naming.ANNOTATION_SURPLUS_SINCE: str(int(NOW) + 3600)}), 30),
        (30, pod(phase="Pending"), 0),
        (30, ended(1), 0),
        (30, ended(0, phase="Running"), 0),
    ],
)
def test_surplus_pod_drains_while_it_works(drain, what, seconds):
    """The time runs from when it was found surplus; a pod that does not run has nothing to drain."""
    cluster = make_cluster({"worker": {"drainTimeoutSeconds": drain}})

    assert scale_down.seconds_to_drain(cluster.jobs[0], what, NOW) == seconds


def test_pod_of_a_removed_job_goes_at_once():
    """Its drainTimeoutSeconds are gone with it."""
    assert scale_down.seconds_to_drain(None, pod(), NOW) == 0.0


@pytest.mark.parametrize(
    ("policy", "cleaned"), [("None", []), ("All", ["rests", "runs", "sidecar"]), ("Running", ["runs", "sidecar"])]
)
def test_clean_pod_policy_chooses_the_pods(policy, cleaned):
    """Under Running the logs of what has ended stay; pods of others and those that go are left alone."""
    pods = [
        pod("runs"),
        ended(1, name="rests"),
        ended(1, name="sidecar", phase="Running", at_rest=False),
        pod("foreign", owner="other"),
        pod("leaves", leaving=NOW),
    ]
    cluster = make_cluster({"worker": 1}, cleanPodPolicy=policy)

    assert sorted(one.meta.name for one in clean_up.pods_to_clean(roster(cluster, *pods))) == cleaned


@pytest.mark.parametrize(
    ("grace", "leaving", "left"),
    [
        (60, NOW - 30, 60),
        (60, NOW - 90, 0),
        (None, NOW - 900, None),
        (60, 0.0, None),
        (0, NOW, 30),
    ],
)
def test_pod_is_freed_only_where_the_user_says_when(grace, leaving, left):
    """So many seconds after its grace period, and never a pod that stays."""
    cluster = make_cluster({"worker": 1}, **({"forceDeleteAfterSeconds": grace} if grace is not None else {}))

    assert termination.seconds_until_freed(cluster, pod(leaving=leaving), NOW) == left


def test_pod_is_stuck_ten_seconds_after_its_grace_period():
    """Not at the end of the grace period itself, which an obedient node may need."""
    assert termination.seconds_until_stuck(pod(leaving=NOW - 30), NOW) == 10.0


@pytest.mark.parametrize(
    ("grace", "node", "words"),
    [
        (None, "node-7", ["node node-7 does not confirm", "set forceDeleteAfterSeconds", "--force"]),
        (60, "node-7", ["node node-7 does not confirm", "deleted by force 60 s after"]),
        (None, "", ["nobody confirms its end"]),
    ],
)
def test_stuck_pod_is_told_with_its_cure(grace, node, words):
    """The message names the pod, what it waits for, and what can be done."""
    cluster = make_cluster({"worker": 1}, **({"forceDeleteAfterSeconds": grace} if grace is not None else {}))

    told = termination.words_for(cluster, pod(node=node, leaving=NOW))

    assert all(word in told for word in ["demo-worker-0", *words])


def test_pod_that_a_finalizer_keeps_is_told_with_its_keeper():
    """Its containers have ended, so that neither the node nor a deletion by force has to do with it."""
    kept = pod(leaving=NOW, grace=0.0)
    kept = replace(kept, meta=replace(kept.meta, finalizers=("example.com/keep",)))

    told = termination.words_for(make_cluster({"worker": 1}, forceDeleteAfterSeconds=5), kept)

    assert "the finalizer example.com/keep keeps it" in told
    assert "force" not in told


@pytest.mark.parametrize(("code", "ending"), [(0, Ending.FAILED), (143, Ending.FAILED)])
def test_pod_that_ran_out_of_time_has_failed(code, ending):
    """Its template's activeDeadlineSeconds was over: what the program made of SIGTERM says nothing."""
    late = pod(phase="Failed", reason="DeadlineExceeded", exit=Exit(code, "Completed"))

    assert ending_of(late) is ending
    assert "DeadlineExceeded" in words_for(late)
