"""A cluster's part in the metrics: its tasks by role and state, the reason why it is not ready, and its failures."""

from typing import Any

import pytest
from decisions.in_memory import NOW, make_body, timestamp

from tfcluster_operator.declaration.ledger import LastRestart
from tfcluster_operator.report.status import cause_of, tasks_of, waiting


def test_tasks_are_counted_by_role():
    """Jobs with a name that TensorFlow does not use are counted together."""
    jobs = {"chief": {"replicas": 1, "ready": 1}, "my_data": {"replicas": 1, "created": 1}, "other": {"replicas": 2}}
    found = {key: count for key, count in tasks_of({"jobs": jobs}).items() if count}
    assert found == {("chief", "declared"): 1, ("chief", "ready"): 1, ("other", "declared"): 3, ("other", "created"): 1}


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
