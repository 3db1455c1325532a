"""The fixed order of the evaluation, and what it keeps, forgets and counts once."""

from dataclasses import replace
from operator import methodcaller as does

import pytest
from in_memory import OTHERS, InMemoryWorld, make_cluster, running, settled

from tfcluster_operator.declaration.ledger import Failing, JobRecord, Ledger, Lost, Verdict


def fails(*workers, **status):
    def happens(world):
        for index in workers:
            world.pod_ends(f"demo-worker-{index}", "Failed", **status)

    return happens


SUCCEEDS, CHIEF_SUCCEEDS = (does("pod_ends", f"demo-{task}", "Succeeded") for task in ("worker-0", "chief-0"))
FOREIGN = does("edit", "Pod", "demo-worker-0", OTHERS["nobody's"])
NEVER, TOGETHER = {"restartPolicy": "Never"}, {"restartScope": "Job"}


@pytest.mark.parametrize(
    ("worker", "spec", "happens", "ended"),
    [
        (NEVER, {"backoffLimit": 0}, [fails(0), CHIEF_SUCCEEDS], ("TasksSucceeded", 0, set())),
        (NEVER, {"activeDeadlineSeconds": 0}, [fails(0)], ("TaskFailed", 0, set())),
        ({}, {"suspend": True, "activeDeadlineSeconds": 1}, [], (None, 0, set())),
        (TOGETHER, {"backoffLimit": 1}, [fails(0, 1, 2, 3, 4)], (None, 1, set())),
        (NEVER, {}, [SUCCEEDS], (None, 0, {0})),
        ({"restartPolicy": "OnFailure"}, {}, [SUCCEEDS], (None, 0, {0})),
        ({"restartPolicy": "ExitCode"}, {}, [SUCCEEDS], (None, 0, {0})),
        ({"restartPolicy": "Always"}, {}, [SUCCEEDS], (None, 0, set())),
        ({}, {}, [SUCCEEDS, FOREIGN], (None, 0, set())),
    ],
    ids=[
        "success comes before failures",
        "a failure comes before the deadline",
        "a suspended cluster has no deadline",
        "a scope that fails together is one restart",
        "Never",
        "OnFailure",
        "ExitCode",
        "Always",
        "a pod of others",
    ],
)
def test_ends_are_judged_in_one_order(worker, spec, happens, ended):
    reason, restarts, completed = ended
    jobs = {"chief": 1, "worker": {"replicas": 5, **worker}}
    cluster, world = make_cluster(jobs, **spec), settled(make_cluster(jobs))
    for happening in happens:
        happening(world)
    known = world.stock(cluster)
    verdict = known.verdict and known.verdict.reason
    assert (verdict, known.restarts, known.of("worker").completed) == (reason, restarts, completed)
    assert known.finished_at == (world.now if reason else 0.0)
    assert known.of("worker").incarnation == (restarts if worker is TOGETHER else bool(spec.get("suspend")))
    assert world.stock(cluster, known) == known


def test_failure_that_was_seen_first_is_judged_first():
    cluster, world = running({"worker": 3}, backoffLimit=1)
    for name in ("demo-worker-2", "demo-worker-0", "demo-worker-1"):
        world.now += 1
        world.pod_ends(name, "Failed")
        world.observe(cluster)
    known = world.stock(cluster)
    assert known.last_restart.task == "worker-2"
    assert known.verdict.message.startswith("worker-0 failed after 1 of 1 restarts")


def test_failures_at_one_time_are_judged_by_job_and_index():
    cluster, world = running({"ps": 1, "worker": 2}, backoffLimit=2)
    for name in ("demo-worker-1", "demo-ps-0", "demo-worker-0"):
        world.pod_ends(name, "Failed")
    known = world.stock(cluster)
    assert known.last_restart.task == "worker-0"
    assert known.verdict.message.startswith("worker-1 failed")


@pytest.mark.parametrize(
    ("ahead", "retry_in"), [(0.0, 0.0), (300.0, 300.0), (375.0, 375.0), (376.0, 0.0), (3600.0, 0.0)]
)
def test_time_beyond_the_longest_back_off_is_read_as_now(ahead, retry_in):
    cluster, world = running({"worker": 1}, activeDeadlineSeconds=9)
    now = world.now
    failing = {0: Failing(3, now + ahead)}
    known = Ledger(
        started_at=now + ahead, jobs={"worker": JobRecord(failing=failing, restart_at=now + ahead, in_row=3)}
    )
    found = world.stock(cluster, known)
    assert found.started_at == now
    assert (found.of("worker").failing[0].retry_at, found.of("worker").restart_at) == (now + retry_in,) * 2


@pytest.mark.parametrize(
    ("since", "started", "kept"), [(599.0, True, True), (600.0, True, False), (600.0, False, True)]
)
def test_failure_of_a_task_that_works_is_forgotten_after_ten_minutes(since, started, kept):
    """A record without an end would grow without limit: the next failure removes it."""
    cluster, world = running({"worker": 2})
    world.pod_ends("demo-worker-1", "Failed")
    works = frozenset({0}) if started else frozenset()
    if not started:
        del world.objects["Pod", "demo-worker-0"]
    record = JobRecord(failing={0: Failing(3, world.now - since)}, started=works | {1})
    found = world.stock(cluster, Ledger(started_at=5.0, jobs={"worker": record}))
    assert (0 in found.of("worker").failing, 1 in found.of("worker").failing) == (kept, True)


def test_what_only_served_the_next_start_goes_with_the_end():
    counts = JobRecord(restarts=3, replaced=2, incarnation=1, in_row=3, completed=frozenset({0}))
    once = {"started": frozenset({1}), "counted": frozenset({"a"}), "failing": {1: Failing(3, 9.0)}}
    record = replace(counts, **once, restart_at=9.0)
    known = Ledger(finished_at=5.0, verdict=Verdict("Failed", "R", "M"), jobs={"worker": record})
    assert InMemoryWorld().stock(make_cluster({"worker": 2}), known).of("worker") == counts


def test_suspended_cluster_is_as_at_the_start_but_for_its_incarnation():
    counts = JobRecord(restarts=2, replaced=3, incarnation=4, in_row=2, restart_at=9.0)
    used = replace(counts, completed=frozenset({0}), failing={1: Failing(1, 2.0)})
    known = Ledger(started_at=5.0, restarts=2, jobs={"worker": used})
    rested = InMemoryWorld().stock(make_cluster({"worker": 2}, suspend=True), known)
    assert (rested.started_at, rested.restarts, rested.of("worker")) == (0.0, 0, JobRecord(incarnation=5))
    again = InMemoryWorld().stock(make_cluster({"worker": 2}, suspend=True), rested)
    assert again.of("worker") == JobRecord(incarnation=5)


def test_pod_of_an_earlier_incarnation_is_ignored():
    cluster, world = running({"worker": {"replicas": 2, "restartScope": "Job"}})
    world.pod_ends("demo-worker-0", "Failed")
    known = world.stock(cluster)
    world.pod_ends("demo-worker-1", "Succeeded")
    assert world.stock(cluster, known) == known


def test_undeclared_tasks_are_forgotten():
    both = {1: Failing(1, 2.0), 3: Failing(1, 2.0)}, {1: Lost("", 0), 3: Lost("", 0)}
    record = JobRecord(completed=frozenset({0, 3}), started=frozenset({3}), failing=both[0], lost=both[1])
    known = Ledger(started_at=5.0, jobs={"worker": record, "ps": record})
    after = InMemoryWorld().stock(make_cluster({"worker": 2}), known)
    assert set(after.jobs) == {"worker"}
    worker = after.of("worker")
    assert (worker.completed, worker.started, set(worker.failing), set(worker.lost)) == ({0}, set(), {1}, {1})


def test_failure_is_counted_once_though_its_task_is_scaled_away_and_back():
    cluster, world = running({"worker": 2})
    world.pod_ends("demo-worker-1", "Failed")
    known = world.stock(cluster)
    known = world.stock(make_cluster({"worker": 1}), known)
    known = world.stock(cluster, known)
    assert (known.restarts, len(known.of("worker").counted)) == (1, 1)
    world.delete("Pod", "demo-worker-1")
    assert not world.stock(cluster, known).of("worker").counted
