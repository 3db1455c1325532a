"""The status: counts that tell the truth, conditions that say why, times that move only when they should."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from unit.in_memory import NOW, InMemoryWorld, make_cluster, settled

from tfcluster_operator.model import naming, reasons
from tfcluster_operator.model.actions import Finding
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.status import invalid_status, status_of

LATER = NOW + 3600
NOW_TEXT, LATER_TEXT = "2027-01-15T08:00:00Z", "2027-01-15T09:00:00Z"
GPU_TEMPLATE = {
    "spec": {
        "containers": [
            {"name": "task", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2", "rdma/hca": "1"}}}
        ]
    }
}


def report(
    cluster: TFCluster, world: InMemoryWorld, *more: Finding, now: float = NOW, aside: Sequence[Finding] = ()
) -> dict[str, Any]:
    """Give the status after one plan that is not carried out."""
    planned = world.plan(cluster)
    return status_of(world.roster(cluster), world.ledger, planned.views, (*planned.findings, *more), now, aside=aside)


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    """Give (status, reason, message) of one condition."""
    (found,) = [one for one in status["conditions"] if one["type"] == kind]
    return found["status"], found["reason"], found["message"]


def test_a_running_cluster_is_ready():
    """Every task's pod is ready: the whole status, to the letter."""
    cluster = make_cluster({"chief": 1, "worker": 2}, generation=4)

    status = report(cluster, settled(cluster))

    def job(name: str, count: int) -> dict[str, Any]:
        return {
            "desired": count,
            "created": count,
            "ready": count,
            "succeeded": 0,
            "failed": 0,
            "restarts": 0,
            "replaced": 0,
            "accelerators": {},
            "selector": f"tfcluster.dev/cluster=demo,tfcluster.dev/job={name}",
        }

    def says(kind: str, value: str, reason: str, message: str) -> dict[str, Any]:
        return {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "observedGeneration": 4,
            "lastTransitionTime": NOW_TEXT,
        }

    assert {
        "observedGeneration": 4,
        "epoch": 4,
        "ready": "3/3",
        "accelerators": "",
        "restarts": 0,
        "startTime": "2027-01-15T08:00:00.000Z",
        "jobs": {"chief": job("chief", 1), "worker": job("worker", 2)},
        "internal": {"jobs": {"chief": {"startedIndexes": "0"}, "worker": {"startedIndexes": "0-1"}}},
        "conditions": [
            says("Ready", "True", "AllTasksReady", "3 of 3 ready"),
            says("Suspended", "False", "NotSuspended", "spec.suspend is false"),
            says("Succeeded", "False", "NotFinished", "waiting for all tasks of chief to end with exit code 0"),
            says("Failed", "False", "NotFinished", "no failure is final yet"),
            says("Stalled", "False", "NotStalled", "the cluster has not failed"),
            says("MembershipPublished", "True", "Published", "every running pod was told of its view; newest epoch 4"),
            says("UpToDate", "True", "AllCurrent", "every pod is made from the present template"),
            says("NameConflict", "False", "NoConflict", "no name is taken by others"),
        ],
    } == status


@pytest.mark.parametrize(
    ("happens", "counts"),
    [
        (lambda _: None, {"created": 2, "ready": 2, "succeeded": 0, "failed": 0}),
        (
            lambda world: world.pod_runs("demo-worker-1", conditions=[{"type": "Ready", "status": "False"}]),
            {"created": 2, "ready": 1, "succeeded": 0, "failed": 0},
        ),
        (
            lambda world: world.pod_ends("demo-worker-1", "Failed"),
            {"created": 2, "ready": 1, "succeeded": 0, "failed": 1},
        ),
        (
            lambda world: world.pod_ends("demo-worker-1", "Succeeded"),
            {"created": 2, "ready": 1, "succeeded": 1, "failed": 0},
        ),
        (
            lambda world: world.pod_ends(
                "demo-worker-1", "Succeeded", conditions=[{"type": "Ready", "status": "True"}]
            ),
            {"created": 2, "ready": 1, "succeeded": 1, "failed": 0},
        ),
        (
            lambda world: world.delete("Pod", "demo-worker-1"),
            {"created": 1, "ready": 1, "succeeded": 0, "failed": 0},
        ),
        (
            lambda world: world.edit("Pod", "demo-worker-1", {"metadata": {"ownerReferences": None}}),
            {"created": 1, "ready": 1, "succeeded": 0, "failed": 0},
        ),
    ],
    ids=["all run", "one is not ready", "one failed", "one succeeded", "ready to the last", "one goes", "one is taken"],
)
def test_counts_tell_what_is_there(happens, counts):
    """Only pods of ours that stay count, each under what it is now."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    happens(world)

    found = report(cluster, world)["jobs"]["worker"]

    assert counts == {key: found[key] for key in counts}
    assert found["desired"] == 2


def test_finished_tasks_count_as_done():
    """When one task has finished and the other runs, nothing is waited for."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Succeeded")

    status = report(cluster, world)

    assert condition(status, "Ready") == ("True", "AllTasksReady", "1 of 2 ready, 1 finished")
    assert status["ready"] == "1/2"


def test_waiting_tasks_are_named_the_telling_ones_first():
    """The message names three tasks, those with a cause before those that are merely starting."""
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


def test_the_gravest_finding_is_told():
    """Of several findings the one that stops the most is Ready's reason."""
    cluster = make_cluster({"worker": 2})
    grave, grace = Finding(reasons.NAME_TAKEN, "grave"), Finding(reasons.TASKS_NOT_READY, "light")

    assert condition(report(cluster, InMemoryWorld(), grace, grave), "Ready") == ("False", "NameTaken", "grave")


@pytest.mark.parametrize(
    "reason",
    [
        reasons.VIEW_TOO_LARGE,
        reasons.TF_CONFIG_TOO_LARGE,
        reasons.NAME_TAKEN,
        reasons.REJECTED,
        reasons.WAITING_FOR_PREDECESSOR,
        reasons.TASKS_NOT_READY,
    ],
)
def test_every_finding_tells_why_tasks_are_not_ready(reason):
    """Whatever is found is told as Ready's reason where tasks are not ready."""
    status = report(make_cluster({"worker": 2}), InMemoryWorld(), Finding(reason, "why"))

    assert ("False", reason, "why") == condition(status, "Ready")
    assert (reason == reasons.NAME_TAKEN) == (condition(status, "NameConflict")[0] == "True")


@pytest.mark.parametrize("side", [True, False])
def test_tasks_that_all_work_are_ready_whatever_is_found(side):
    """What is wrong beside them is told by UpToDate."""
    cluster, found = make_cluster({"worker": 2}), (Finding(reasons.REJECTED, "why"),)
    world = settled(cluster)

    status = report(cluster, world, aside=found) if side else report(cluster, world, *found)

    assert condition(status, "Ready")[:2] == ("True", reasons.ALL_TASKS_READY)
    assert condition(status, "UpToDate") == ("False", reasons.REJECTED, "why")


@pytest.mark.parametrize(
    "reason", [reasons.WAITING_FOR_QUOTA, reasons.WAITING_FOR_GANG, reasons.WAITING_FOR_PREDECESSOR]
)
def test_wait_of_an_evaluator_is_reported(reason):
    """It does not count for Ready, and its wait has a reason all the same."""
    cluster = make_cluster({"worker": 1, "evaluator": 1})

    status = report(cluster, settled(cluster), Finding(reason, "it waits"))

    assert (condition(status, "Ready")[0], condition(status, "UpToDate")) == ("True", ("False", reason, "it waits"))


def test_side_matter_does_not_say_why_tasks_are_not_ready():
    """Ready tells what the tasks wait for, and UpToDate the rest."""
    cluster = make_cluster({"worker": 2})
    pending = Finding(reasons.WAITING_FOR_JOB, "job worker waits")

    status = report(cluster, InMemoryWorld(), pending, aside=(Finding(reasons.REJECTED, "no budget"),))

    assert condition(status, "Ready") == ("False", reasons.WAITING_FOR_JOB, "job worker waits")
    assert condition(status, "UpToDate") == ("False", reasons.REJECTED, "no budget")


def test_cluster_without_its_service_is_not_ready():
    """No task finds another without it, though each be ready."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    world.delete("Service", "demo")

    status = report(cluster, world, Finding(reasons.REJECTED, "Service demo: denied"))

    assert condition(status, "Ready") == ("False", reasons.REJECTED, "Service demo: denied")


def test_many_findings_of_one_reason_are_cut_short():
    """Three messages are told, the rest counted."""
    cluster = make_cluster({"worker": 1})
    found = [Finding(reasons.REJECTED, f"no {i}") for i in range(5)]

    assert condition(report(cluster, settled(cluster), *found), "UpToDate")[2] == "no 0; no 1; no 2; and 2 more"


def test_long_words_of_others_are_cut():
    """What a webhook says may be longer than a condition's message may be."""
    status = report(make_cluster({"worker": 1}), InMemoryWorld(), Finding(reasons.REJECTED, "no " * 20_000))

    assert len(condition(status, "Ready")[2]) < 2_000


def test_a_suspended_cluster_is_not_ready_and_says_why():
    """Suspended is true, Ready false by the user's wish, and nothing is unpublished."""
    cluster = make_cluster({"worker": 2}, suspend=True)
    world = InMemoryWorld()
    world.settle(cluster)

    status = report(cluster, world)

    assert condition(status, "Ready") == ("False", "Suspended", "suspended by spec.suspend: no pods")
    assert condition(status, "Suspended") == ("True", "Suspended", "spec.suspend is true")
    assert condition(status, "MembershipPublished")[0] == "True"
    assert (status["ready"], status["jobs"]["worker"]["desired"], status["jobs"]["worker"]["created"]) == ("0/2", 2, 0)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda world: world.edit("ConfigMap", "demo-worker", {"data": {"cluster.json": "x"}}),
            "ConfigMap demo-worker",
        ),
        (lambda world: world.objects.pop(("ConfigMap", "demo-worker")), "ConfigMap demo-worker"),
        (
            lambda world: world.edit(
                "ConfigMap", "demo-worker", {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}}
            ),
            "ConfigMap demo-worker",
        ),
        (
            lambda world: world.edit(
                "Pod", "demo-worker-1", {"metadata": {"annotations": {naming.ANNOTATION_VIEW: "old"}}}
            ),
            "worker-1",
        ),
    ],
    ids=["a stale file", "no ConfigMap", "a ConfigMap that goes", "a pod that was not told"],
)
def test_membership_is_published_when_every_view_is_written_and_told(edit, message):
    """One stale view or one pod that was not told is named."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    edit(world)

    assert ("False", "Publishing", f"1 not told yet: {message}") == condition(
        report(cluster, world), "MembershipPublished"
    )


def test_a_pod_that_has_ended_need_not_be_told():
    """Nobody reads the view in a pod that has finished."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    world.pod_ends("demo-worker-1", "Succeeded")
    world.edit("Pod", "demo-worker-1", {"metadata": {"annotations": {naming.ANNOTATION_VIEW: "old"}}})

    assert condition(report(cluster, world), "MembershipPublished")[0] == "True"


# --- accelerators


def test_running_pods_hold_their_limits_where_the_server_does_not_tell():
    """A device plugin grants a limit whole: without word of devices a running pod holds what it asked for."""
    cluster = make_cluster({"chief": 1, "worker": {"replicas": 2, "template": GPU_TEMPLATE}})

    status = report(cluster, settled(cluster))

    assert status["jobs"]["worker"]["accelerators"] == {"nvidia.com/gpu": 4, "rdma/hca": 2}
    assert (status["jobs"]["chief"]["accelerators"], status["accelerators"]) == ({}, "4 nvidia.com/gpu")


def test_healthy_devices_count_and_sick_ones_do_not():
    """Where the kubelet tells of devices, the healthy ones are counted; what the template does not ask for is not."""
    cluster = make_cluster({"worker": {"replicas": 2, "template": GPU_TEMPLATE}})
    world = settled(cluster)
    world.pod_holds("demo-worker-0", "nvidia.com/gpu", "Healthy", "Unhealthy")
    world.pod_holds("demo-worker-1", "example.com/other", "Healthy")

    status = report(cluster, world)

    assert status["jobs"]["worker"]["accelerators"] == {"nvidia.com/gpu": 3, "rdma/hca": 2}
    assert status["accelerators"] == "3 nvidia.com/gpu"


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_pod_that_does_not_run_holds_nothing(phase):
    """Devices are held by running pods alone."""
    cluster = make_cluster({"worker": {"replicas": 1, "template": {"spec": {**GPU_TEMPLATE["spec"], **_NEVER}}}})
    world = settled(cluster)
    world.edit("Pod", "demo-worker-0", {"status": {"phase": phase}})

    assert report(cluster, world)["accelerators"] == ""


_NEVER: dict[str, Any] = {}


# --- times


def _with_status(cluster: TFCluster, status: dict[str, Any], **changes: Any) -> TFCluster:
    body = {field: getattr(cluster, field) for field in TFCluster.__slots__}
    return TFCluster(**{**body, "status": copy.deepcopy(status), **changes})


def test_a_status_in_which_nothing_changed_is_the_same():
    """An hour later the same world gives the same status, so nothing is written."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    before = report(cluster, world)

    assert before == report(_with_status(cluster, before), world, now=LATER)


def test_the_time_moves_with_the_status_of_the_condition_alone():
    """Ready turns false: its time moves; the others' times stay."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    before = report(cluster, world)
    world.objects.pop(("Pod", "demo-worker-1"))

    after = report(_with_status(cluster, before), world, now=LATER)

    assert {one["type"]: one["lastTransitionTime"] for one in after["conditions"]} == {
        "Ready": LATER_TEXT,
        "Suspended": NOW_TEXT,
        "Succeeded": NOW_TEXT,
        "Failed": NOW_TEXT,
        "Stalled": NOW_TEXT,
        "MembershipPublished": NOW_TEXT,
        "UpToDate": NOW_TEXT,
        "NameConflict": NOW_TEXT,
    }


def test_another_reason_for_the_same_status_keeps_the_time():
    """Not ready before and not ready after: reason, message and generation move, the time does not."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    world.objects.pop(("Pod", "demo-worker-1"))
    before = report(cluster, world)

    after = report(_with_status(cluster, before, generation=9), world, Finding(reasons.REJECTED, "no quota"), now=LATER)

    (ready,) = [one for one in after["conditions"] if one["type"] == "Ready"]
    assert (
        ready["reason"],
        ready["message"],
        ready["observedGeneration"],
        ready["lastTransitionTime"],
    ) == ("Rejected", "no quota", 9, NOW_TEXT)


def test_conditions_of_others_are_kept():
    """A condition of a type that is not ours stays as it is, after ours."""
    foreign = {"type": "example.com/Audited", "status": "True", "reason": "ByHand", "lastTransitionTime": "x"}
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    before = report(cluster, world)
    before["conditions"].insert(0, foreign)

    after = report(_with_status(cluster, before), world, now=LATER)

    assert [one["type"] for one in after["conditions"][:-1]] == [
        "Ready",
        "Suspended",
        "Succeeded",
        "Failed",
        "Stalled",
        "MembershipPublished",
        "UpToDate",
        "NameConflict",
    ]
    assert foreign == after["conditions"][-1]


def test_an_invalid_spec_keeps_what_was_reported_and_says_why():
    """Counts and other conditions stay as they were; Ready and Stalled name every problem."""
    cluster = make_cluster({"worker": 2})
    before = report(cluster, settled(cluster))

    after = invalid_status(before, generation=5, problems=["first", "second"], now=LATER)

    assert condition(after, "Ready") == ("False", "InvalidSpec", "first; second")
    assert after["observedGeneration"] == 5
    assert {key: before[key] for key in ("epoch", "ready", "accelerators", "internal", "jobs")} == {
        key: after[key] for key in ("epoch", "ready", "accelerators", "internal", "jobs")
    }
    assert condition(after, "Stalled") == ("True", "InvalidSpec", "first; second")
    kept = [[one for one in of["conditions"] if one["type"] not in {"Ready", "Stalled"}] for of in (before, after)]
    assert kept[0] == kept[1]


def test_an_invalid_spec_is_told_on_a_cluster_without_a_status():
    """A TFCluster that was never materialised gets its first condition."""
    after = invalid_status({}, generation=1, problems=["no jobs"], now=NOW)

    assert {"observedGeneration", "conditions"} == set(after)
    assert after["conditions"][0]["lastTransitionTime"] == NOW_TEXT
