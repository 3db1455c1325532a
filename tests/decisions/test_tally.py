"""A cluster's part in the metrics: its tasks by role and state, the reason why it is not ready, and its failures."""

from __future__ import annotations

from typing import Any

import pytest
from decisions.in_memory import NOW, InMemoryWorld, make_body, make_cluster, settled, timestamp

from tfcluster_operator.declaration.ledger import JobRecord, LastRestart, Ledger, Verdict
from tfcluster_operator.life.roster import Roster, call_roll
from tfcluster_operator.report.conditions import by_type
from tfcluster_operator.report.status import cause_of, tasks_of, undelivered_since, waiting

JOBS = {"chief": 1, "worker": 4, "my_data": 1, "my_other": 2}
FOREIGN = {"metadata": {"ownerReferences": None}}


def roster_of(world: InMemoryWorld, **spec: Any) -> Roster:
    cluster = make_cluster(JOBS, **spec)
    return call_roll(cluster, world.observe(cluster))


def test_each_task_is_in_one_state():
    """Jobs with a name that TensorFlow does not use are counted together; each declared task is counted once."""
    world = settled(make_cluster(JOBS))
    world.pod_ends("demo-worker-0", "Failed")
    world.objects.pop(("Pod", "demo-worker-1"))
    world.pod_runs("demo-worker-2", conditions=[])
    world.edit("Pod", "demo-my-data-0", FOREIGN)
    known = Ledger(jobs={"chief": JobRecord(completed=frozenset({0}))})
    assert tasks_of(roster_of(world).completed_by(known), known) == {
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
def test_idle_task_does_not_count_as_missing(spec, ledger):
    world = settled(make_cluster(JOBS))
    world.objects.pop(("Pod", "demo-chief-0"))
    found = tasks_of(roster_of(world, **spec), ledger)
    assert found == {("chief", "idle"): 1, ("worker", "ready"): 4, ("other", "ready"): 3}


@pytest.mark.parametrize(
    ("reason", "code", "cause"),
    [
        ("OOMKilled", 137, "OOMKilled"),
        ("KilledBySignal", 139, "KilledBySignal"),
        ("ContainerCannotRun", 127, "ExitCode"),
        ("DeadlineExceeded", 0, "Other"),
        ("UnexpectedAdmissionError", None, "Other"),  # without a container's reason, as after a rejection
    ],
)
def test_failures_have_few_causes(reason, code, cause):
    """A cause corresponds to a remedy; the messages of container runtimes are not labels."""
    assert cause_of(LastRestart("worker-0", reason, code)) == cause


def condition(text: str) -> dict[str, Any]:
    """Parse a condition from "type=status reason seconds-ago", where - is no reason."""
    kind, reason, ago = text.split()
    reason, since = reason.replace("-", ""), timestamp(NOW - int(ago))
    return dict(zip(("type", "status"), kind.split("="), strict=True)) | {"reason": reason, "lastTransitionTime": since}


#: The conditions, the reason, and for how many seconds the cluster is awaited. It waits for a decision for 30 s.
WAITING = {
    "ready": ("Ready=True AllTasksReady 0", None),
    "not ready": ("Ready=False Rejected 50, Suspended=False - 90", ("Rejected", 50)),
    "resumed": ("Ready=False TasksNotReady 900, Suspended=False - 7", ("TasksNotReady", 7)),
    "resumed a moment ago": ("Ready=False Suspended 900, Suspended=True - 900", None),
    "waits for quota": ("Ready=False WaitingForQuota 900, Suspended=True WaitingForQuota 0", ("WaitingForQuota", 30)),
    "waits for a gang": ("Ready=False WaitingForGang 900, Suspended=False - 900", ("WaitingForGang", 30)),
    "is kept from waiting for quota": (
        "Ready=False QueueUnavailable 50, Suspended=True WaitingForQuota 50",
        ("QueueUnavailable", 50),
    ),
    "has given up": ("Ready=False GangTimeout 50, Suspended=True GangTimeout 50", None),
    "succeeded": ("Succeeded=True - 0, Ready=True Succeeded 0", None),
    "failed": ("Ready=False TaskFailed 0, Failed=True - 0", None),
    "of another version": ("Ready=False Unheard 5", ("NotReported", 5)),
}


def waited_for(body: dict[str, Any], *conditions: dict[str, Any]) -> tuple[str, float] | None:
    return waiting(body, {"conditions": conditions, "waitingSince": timestamp(NOW - 30)})


def created(ago: int | None = None, **spec: Any) -> dict[str, Any]:
    body = make_body(**spec)
    body["metadata"]["creationTimestamp"] = None if ago is None else timestamp(NOW - ago)
    return body


@pytest.mark.parametrize("case", WAITING)
def test_cluster_is_waited_for_while_it_should_be_ready(case):
    """It counts from the creation, the loss of Ready, or the resumption, whichever was last."""
    conditions, waited = WAITING[case]
    found = waited_for(created(), *map(condition, conditions.split(", ")))
    assert found == (waited and (waited[0], NOW - waited[1]))


def test_unreported_cluster_waits_since_creation_unless_suspended_or_deleted():
    assert waited_for(created(suspend=True), condition("Ready=False Suspended 900")) is None
    leaving = created()
    leaving["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert waited_for(leaving, condition("Ready=False Deleting 900")) is None
    assert waited_for(created(20)) == ("NotReported", NOW - 20)
    for no_date in ("0001-01-01T00:00:00", "now"):
        undated = {"type": "Ready", "status": "False", "lastTransitionTime": no_date}
        assert waited_for(created(), undated) == ("NotReported", 0)


def test_cluster_that_starts_after_days_of_waiting_is_not_late_yet():
    """Its time starts when it is scheduled; a restarted operator uses its creation."""
    told = {"conditions": [condition("Ready=False TasksNotReady 900")]}
    body = created(990)
    assert waiting(body, told, NOW - 60) == ("TasksNotReady", NOW - 60)
    assert waiting(body, told) == ("TasksNotReady", NOW - 900)
    told["conditions"][0]["reason"] = "WaitingForGang"
    assert waiting(body, told) == ("WaitingForGang", NOW - 990)


def test_view_is_undelivered_while_the_condition_says_so():
    """A cluster that is being deleted is not awaited."""
    body = make_body()
    late = by_type({"conditions": [condition("MembershipPublished=False - 30")]})
    told = by_type({"conditions": [condition("MembershipPublished=True - 30")]})
    assert undelivered_since(body, late) == NOW - 30
    assert undelivered_since(body, told) is None
    assert undelivered_since(body, {}) is None
    body["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert undelivered_since(body, late) is None
