"""The status: true counts, conditions with reasons, and times that change only when they should."""

import copy
from collections.abc import Sequence
from operator import methodcaller as does
from typing import Any

import pytest
from decisions.in_memory import LEAVING, NOW, InMemoryWorld, make_cluster, running, settled

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.plan.actions import Finding
from tfcluster_operator.report.status import status_of, unreconciled_status

LATER = NOW + 3600
NOW_TEXT = "2027-01-15T08:00:00Z"
LIMITS = {"resources": {"limits": {"nvidia.com/gpu": "2", "rdma/hca": "1"}}}
GPU_TEMPLATE = {"spec": {"containers": [{"name": "task", "image": "i", **LIMITS}]}}
WORKER = "demo-worker-1"


def report(
    cluster: TFCluster, world: InMemoryWorld, *more: Finding, now: float = NOW, aside: Sequence[Finding] = ()
) -> dict[str, Any]:
    planned = world.plan(cluster)
    return status_of(world.roster(cluster), world.ledger, planned.views, (*planned.findings, *more), now, aside=aside)


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    (found,) = [one for one in status["conditions"] if one["type"] == kind]
    return found["status"], found["reason"], found["message"]


def test_waiting_tasks_are_named_the_telling_ones_first():
    cluster = make_cluster({"worker": 5})
    world = InMemoryWorld()
    world.settle(cluster)
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    world.pod_runs(
        "demo-worker-3",
        phase="Pending",
        conditions=[],
        containerStatuses=[{"name": "task", "state": {"waiting": waiting}}],
    )
    assert condition(report(cluster, world), "Ready") == (
        "False",
        "TasksNotReady",
        (
            "0 of 5 tasks are ready; worker-3: ImagePullBackOff: no such image; worker-0: not ready yet; "
            "worker-1: not ready yet; and 2 more"
        ),
    )


WAIT = Finding(reasons.WAITING_FOR_JOB, "job worker waits")
GRAVE, LIGHT = Finding(reasons.NAME_TAKEN, "grave"), Finding(reasons.TASKS_NOT_READY, "light")
REJECTED = Finding(reasons.REJECTED, "why")
WAITS = [reasons.WAITING_FOR_QUOTA, reasons.WAITING_FOR_GANG, reasons.WAITING_FOR_PREDECESSOR]
LATER_ON = [reasons.BACKING_OFF, reasons.WAITING_FOR_JOB, reasons.STUCK_TERMINATING]
CAUSES = [reasons.VIEW_TOO_LARGE, *LATER_ON, reasons.REJECTED, reasons.WAITING_FOR_PREDECESSOR, reasons.TASKS_NOT_READY]


@pytest.mark.parametrize(
    ("world", "findings", "aside", "says"),
    [
        ("new", [LIGHT, GRAVE], [], {"Ready": GRAVE, "NameConflict": True}),
        ("new", [WAIT], [REJECTED], {"Ready": WAIT, "UpToDate": REJECTED, "NameConflict": False}),
        *(("new", [Finding(one, "why")], [], {"Ready": Finding(one, "why"), "NameConflict": False}) for one in CAUSES),
        ("running", [REJECTED], [], {"Ready": True, "UpToDate": REJECTED}),
        ("running", [], [REJECTED], {"Ready": True, "UpToDate": REJECTED}),
        *(("running", [Finding(one, "why")], [], {"Ready": True}) for one in LATER_ON),
        ("without its Service", [REJECTED], [], {"Ready": REJECTED}),
        *(("running", [Finding(one, "why")], [], {"Ready": True, "UpToDate": Finding(one, "why")}) for one in WAITS),
    ],
)
def test_findings_are_the_reason_of_the_conditions_that_they_touch(world, findings, aside, says):
    """Ready has the reason why tasks wait, and UpToDate the others; the evaluator does not count for Ready."""
    cluster = make_cluster({"worker": 2, "evaluator": 1})
    found = InMemoryWorld() if world == "new" else settled(cluster)
    if world == "without its Service":
        found.delete("Service", "demo")
    status = report(cluster, found, *findings, aside=aside)
    for kind, wanted in says.items():
        if isinstance(wanted, Finding):
            value = "True" if kind == "NameConflict" else "False"
            assert condition(status, kind) == (value, wanted.reason, wanted.message)
        else:
            assert condition(status, kind)[0] == str(wanted)


def test_many_findings_of_one_reason_are_cut_short():
    cluster = make_cluster({"worker": 1})
    found = [Finding(reasons.REJECTED, f"no {i}") for i in range(5)]
    assert condition(report(cluster, settled(cluster), *found), "UpToDate")[2] == "no 0; no 1; no 2; and 2 more"


def test_long_words_of_others_are_cut():
    """The message of a webhook can be longer than a condition allows."""
    status = report(make_cluster({"worker": 1}), InMemoryWorld(), Finding(reasons.REJECTED, "no " * 20_000))
    assert len(condition(status, "Ready")[2]) < 2_000


TOLD_OLD = does("edit", "Pod", WORKER, {"metadata": {"annotations": {naming.ANNOTATION_VIEW: "old"}}})
VIEW = ("ConfigMap", "demo-worker")


@pytest.mark.parametrize(
    ("happens", "missing"),
    [
        ([does("edit", *VIEW, {"data": {"cluster.json": "x"}})], "ConfigMap demo-worker"),
        ([does("delete", *VIEW)], "ConfigMap demo-worker"),
        ([does("edit", *VIEW, LEAVING)], "ConfigMap demo-worker"),
        ([TOLD_OLD], "worker-1"),
        ([TOLD_OLD, does("pod_ends", WORKER, "Succeeded")], ""),
    ],
    ids=["a stale file", "no ConfigMap", "a ConfigMap that goes", "a stale pod", "a pod that has ended"],
)
def test_membership_is_published_when_every_view_is_written_and_told(happens, missing):
    cluster, world = running({"worker": 2})
    for happening in happens:
        happening(world)
    found = condition(report(cluster, world), "MembershipPublished")
    assert found == ("False", "Publishing", f"1 not updated yet: {missing}") if missing else found[0] == "True"


# --- accelerators


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pod_that_does_not_run_has_zero_accelerators(phase):
    cluster, world = running({"worker": {"template": GPU_TEMPLATE}})
    world.edit("Pod", "demo-worker-0", {"status": {"phase": phase}})
    assert report(cluster, world)["accelerators"] == 0


# --- times
def _with_status(cluster: TFCluster, status: dict[str, Any], **changes: Any) -> TFCluster:
    body = {field: getattr(cluster, field) for field in TFCluster.__slots__}
    return TFCluster(**{**body, "status": copy.deepcopy(status), **changes})


def test_another_reason_for_the_same_status_keeps_the_time():
    cluster, world = running({"worker": 2})
    world.objects.pop(("Pod", "demo-worker-1"))
    before = report(cluster, world)
    after = report(_with_status(cluster, before, generation=9), world, Finding(reasons.REJECTED, "no quota"), now=LATER)
    ready = after["conditions"][0]
    found = [ready[key] for key in ("type", "reason", "message", "observedGeneration", "lastTransitionTime")]
    assert found == ["Ready", "Rejected", "no quota", 9, NOW_TEXT]


def test_an_invalid_spec_keeps_what_was_reported_and_says_why():
    cluster = make_cluster({"worker": 2})
    before = report(cluster, settled(cluster))
    wrong = _with_status(cluster, before, generation=5)
    after = unreconciled_status(wrong, reasons.INVALID_SPEC, "first; second", LATER)
    assert condition(after, "Ready") == ("False", "InvalidSpec", "first; second")
    assert after["observedGeneration"] == 5
    assert {key: before[key] for key in ("epoch", "readyTasks", "accelerators", "internal", "jobs")} == {
        key: after[key] for key in ("epoch", "readyTasks", "accelerators", "internal", "jobs")
    }
    assert condition(after, "Stalled") == ("True", "InvalidSpec", "first; second")
    kept = [[one for one in of["conditions"] if one["type"] not in {"Ready", "Stalled"}] for of in (before, after)]
    assert kept[0] == kept[1]
