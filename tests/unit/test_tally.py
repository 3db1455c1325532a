"""What a cluster adds to the metrics: its tasks by role and state, why it is not ready, and how its tasks fail."""

from __future__ import annotations

from typing import Any

import pytest
from unit.in_memory import NOW, InMemoryWorld, make_body, make_cluster, settled, timestamp

from tfcluster_operator.model import tally
from tfcluster_operator.model.conditions import by_type
from tfcluster_operator.model.ledger import JobRecord, LastRestart, Ledger, Verdict
from tfcluster_operator.model.roster import Roster, call_roll

JOBS = {"chief": 1, "worker": 4, "my_data": 1, "my_other": 2}
FOREIGN = {"metadata": {"ownerReferences": None}}


def roster_of(world: InMemoryWorld, **spec: Any) -> Roster:
    cluster = make_cluster(JOBS, **spec)
    return call_roll(cluster, world.observe(cluster))


def test_each_task_is_in_one_state():
    """Jobs whose name says nothing to TensorFlow are counted together; each declared task is counted once."""
    world = settled(make_cluster(JOBS))
    world.pod_ends("demo-worker-0", "Failed")
    world.objects.pop(("Pod", "demo-worker-1"))
    world.pod_runs("demo-worker-2", conditions=[])
    world.edit("Pod", "demo-my-data-0", FOREIGN)
    known = Ledger(jobs={"chief": JobRecord(completed=frozenset({0}))})

    assert tally.tasks_of(roster_of(world).completed_by(known), known) == {
        ("chief", "completed"): 1,
        ("worker", "ended"): 1,
        ("worker", "missing"): 1,
        ("worker", "starting"): 1,
        ("worker", "ready"): 1,
        ("other", "blocked"): 1,
        ("other", "ready"): 2,
    }


@pytest.mark.parametrize(
    ("spec", "ledger"),
    [({"suspend": True}, Ledger()), ({}, Ledger(verdict=Verdict("Failed", "TaskFailed", "")))],
    ids=["suspended", "failed"],
)
def test_task_that_needs_no_pod_is_not_missing(spec, ledger):
    """While a cluster is suspended, and when it has finished, a task without a pod is idle."""
    world = settled(make_cluster(JOBS))
    world.objects.pop(("Pod", "demo-chief-0"))

    found = tally.tasks_of(roster_of(world, **spec), ledger)

    assert found == {("chief", "idle"): 1, ("worker", "ready"): 4, ("other", "ready"): 3}


FAILURES = {
    "OOMKilled": LastRestart("worker-0", "OOMKilled", 137, "", 0.0),
    "KilledBySignal": LastRestart("worker-0", "KilledBySignal", 139, "", 0.0),
    "ExitCode": LastRestart("worker-0", "ContainerCannotRun", 127, "", 0.0),
    "Other": LastRestart("worker-0", "DeadlineExceeded", 0, "", 0.0),
}


@pytest.mark.parametrize("cause", FAILURES)
def test_failures_have_few_causes(cause):
    """A cause says what a user would do; the words of container runtimes are no label."""
    assert tally.cause_of(FAILURES[cause]) == cause


def test_failure_of_which_nothing_is_known_has_another_cause():
    """A pod that failed without a container's word, as where a node refused it."""
    assert tally.cause_of(LastRestart("worker-0", "UnexpectedAdmissionError", None, "", 0.0)) == "Other"


def condition(kind: str, status: str, reason: str = "", since: float = NOW) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": timestamp(since)}


#: The metadata, the spec and the conditions, and why and since when the cluster is waited for.
WAITING = {
    "ready": ({}, {}, [condition("Ready", "True", "AllTasksReady")], None),
    "not ready": (
        {},
        {},
        [condition("Ready", "False", "Rejected", NOW - 50), condition("Suspended", "False", since=NOW - 90)],
        ("Rejected", NOW - 50),
    ),
    "resumed": (
        {},
        {},
        [condition("Ready", "False", "TasksNotReady", NOW - 900), condition("Suspended", "False", since=NOW - 7)],
        ("TasksNotReady", NOW - 7),
    ),
    "resumed a moment ago": (
        {},
        {},
        [condition("Ready", "False", "Suspended", NOW - 900), condition("Suspended", "True", since=NOW - 900)],
        None,
    ),
    "waits for quota as a whole": (
        {},
        {},
        [condition("Ready", "False", "WaitingForQuota", NOW - 900), condition("Suspended", "True", "WaitingForQuota")],
        ("WaitingForQuota", NOW - 30),
    ),
    "waits for the places of a gang": (
        {},
        {},
        [condition("Ready", "False", "WaitingForGang", NOW - 900), condition("Suspended", "False", since=NOW - 900)],
        ("WaitingForGang", NOW - 30),
    ),
    "is kept from waiting for quota": (
        {},
        {},
        [
            condition("Ready", "False", "QueueUnavailable", NOW - 50),
            condition("Suspended", "True", "WaitingForQuota", NOW - 50),
        ],
        ("QueueUnavailable", NOW - 50),
    ),
    "has given up": (
        {},
        {},
        [condition("Ready", "False", "GangTimeout", NOW - 50), condition("Suspended", "True", "GangTimeout", NOW - 50)],
        None,
    ),
    "suspended": ({}, {"suspend": True}, [condition("Ready", "False", "Suspended", NOW - 900)], None),
    "succeeded": ({}, {}, [condition("Succeeded", "True"), condition("Ready", "True", "Succeeded")], None),
    "failed": ({}, {}, [condition("Ready", "False", "TaskFailed"), condition("Failed", "True")], None),
    "being deleted": (
        {"deletionTimestamp": timestamp(NOW)},
        {},
        [condition("Ready", "False", "Deleting", NOW - 900)],
        None,
    ),
    "not reported yet": ({"creationTimestamp": timestamp(NOW - 20)}, {}, [], ("NotReported", NOW - 20)),
    "of another version": ({}, {}, [condition("Ready", "False", "Unheard", NOW - 5)], ("NotReported", NOW - 5)),
    "dated by a fool": (
        {},
        {},
        [{"type": "Ready", "status": "False", "lastTransitionTime": "0001-01-01T00:00:00"}],
        ("NotReported", 0),
    ),
    "dated by nobody": (
        {},
        {},
        [{"type": "Ready", "status": "False", "lastTransitionTime": "now"}],
        ("NotReported", 0),
    ),
}


@pytest.mark.parametrize("case", WAITING.values(), ids=WAITING.keys())
def test_cluster_is_waited_for_while_it_should_be_ready(case):
    """It counts from when it was created, became unready, or was resumed, whichever was last."""
    metadata, spec, conditions, waited = case
    body = make_body(**spec)
    body["metadata"].update(metadata)
    body["metadata"].setdefault("creationTimestamp", None)

    assert tally.waiting(body, {"conditions": conditions, "waitingSince": timestamp(NOW - 30)}) == waited


def test_cluster_that_starts_after_days_of_waiting_is_not_late_yet():
    """Its time begins when it has got its places; an operator that was away meanwhile knows when it was created."""
    told = {"conditions": [condition("Ready", "False", "TasksNotReady", NOW - 900)]}
    body = make_body()
    body["metadata"]["creationTimestamp"] = timestamp(NOW - 990)

    assert tally.waiting(body, told, NOW - 60) == ("TasksNotReady", NOW - 60)
    assert tally.waiting(body, told) == ("TasksNotReady", NOW - 900)
    told["conditions"][0]["reason"] = "WaitingForGang"
    assert tally.waiting(body, told) == ("WaitingForGang", NOW - 990)


def test_view_is_undelivered_while_the_condition_says_so():
    """What a cluster that is being deleted has not told is not waited for."""
    body = make_body()
    late = by_type({"conditions": [condition("MembershipPublished", "False", since=NOW - 30)]})
    told = by_type({"conditions": [condition("MembershipPublished", "True", since=NOW - 30)]})

    assert tally.undelivered_since(body, late) == NOW - 30
    assert tally.undelivered_since(body, told) is None
    assert tally.undelivered_since(body, {}) is None
    body["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert tally.undelivered_since(body, late) is None
