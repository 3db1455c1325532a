"""Failed pods that are kept: which pod represents the task, the next pod's name, and which are deleted."""

import pytest
from decisions.strategies import make_child
from in_memory import InMemoryWorld, make_cluster, running, settled

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.life.roster import Stage, succession_of
from tfcluster_operator.plan.actions import Create, Finding
from tfcluster_operator.plan.story import Hold, Holds, gate_of

FIRST = "demo-worker-0"
FULL = "Pod x: exceeded quota: few, requested: count/pods=1, used: count/pods=2, limited: count/pods=2"


def world_with(*pods: str, cluster=None) -> InMemoryWorld:
    """Build a world with a worker that has these pods: ``+`` is marked as kept, ``!`` has failed, ``~`` terminates."""
    world = settled(cluster or make_cluster({"worker": 1}))
    first = world.objects.pop(("Pod", FIRST))
    for text in pods:
        name = FIRST + text.strip("+!~")
        labels = {**first["metadata"]["labels"], **({naming.LABEL_KEPT: "true"} if "+" in text else {})}
        world.create("Pod", {**first, "metadata": {**first["metadata"], "name": name, "labels": labels}})
        (world.pod_ends if "!" in text else world.pod_runs)(name, *(["Failed"] if "!" in text else []))
        if "~" in text:
            world.edit("Pod", name, {"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}})
    return world


def succession(*pods: str) -> tuple[str, str | None, list[str]]:
    world = world_with(*pods)
    name, pod, kept = succession_of(FIRST, [world.read("Pod", name) for _, name in world.objects if FIRST in name])
    return (
        name.removeprefix(FIRST),
        pod and pod.meta.name.removeprefix(FIRST),
        [k.meta.name[len(FIRST) :] for k in kept],
    )


@pytest.mark.parametrize(
    ("pods", "name", "speaks", "kept"),
    [
        ([], "", None, []),
        ([""], "", "", []),
        (["!"], "", "", []),
        (["+!"], "-r1", None, [""]),
        (["+!", "-r1"], "-r1", "-r1", [""]),
        (["-r1"], "-r1", "-r1", []),
        (["+!", "-r1+!"], "-r2", None, ["", "-r1"]),
        (["-r9+!", "-r10+!", "-r11"], "-r11", "-r11", ["-r9", "-r10"]),
        (["-r9+!", "-r10+!"], "-r11", None, ["-r9", "-r10"]),
        (["+!~", "-r1~"], "-r1", "-r1", [""]),
        (["+!~"], "-r1", None, [""]),
        (["!", "-r1"], "-r1", "-r1", [""]),
        (["+"], "", "", []),
        (["", "-r1"], "-r1", "-r1", []),
        (["-r4+!", ""], "", "", ["-r4"]),
    ],
)
def test_one_pod_speaks_and_the_next_has_the_next_number(pods, name, speaks, kept):
    assert succession(*pods) == (name, speaks, kept)


@pytest.mark.parametrize(
    ("limit", "pods", "action"),
    [
        (1, ["", "-r1"], (FIRST, reasons.SCALED_DOWN)),
        # Beyond the limit the oldest are deleted; a terminating one is not deleted again, and is not counted.
        (1, ["+!~", "-r1+!", "-r2+!", "-r3"], (f"{FIRST}-r1", reasons.HISTORY_LIMIT)),
    ],
    ids=["two at work", "more than the limit"],
)
def test_one_pod_too_many_goes(limit, pods, action):
    cluster = make_cluster({"worker": 1}, failedPodsHistoryLimit=limit)
    world = world_with(*pods, cluster=cluster)
    assert [(one.name, one.reason) for one in world.plan(cluster).actions] == [action]


def test_no_first_name_looks_like_a_later_one():
    for cluster in ("c", "c-r1", "r1"):
        for job in ("r1", "w_r1", "r", "a_0", "a"):
            for index in (0, 1, 10):
                first = naming.pod_name(cluster, job, index)
                assert naming.first_pod_name(first) == (first, 0)
                assert naming.first_pod_name(naming.later_pod_name(first, 12)) == (first, 12)
    for other in ("c-w-0-r", "c-w-0-r0", "c-w-0-r01", "c-w-0-r-1", "c-w-0-r1x", "c-w-0-r\u0663", "c-w-0-r1234567890"):
        assert naming.first_pod_name(other) == (other, 0)


def test_quota_of_all_pods_has_kept_ones_deleted_first():
    cluster = make_cluster({"worker": 1})
    world = world_with("+!", cluster=cluster)

    def planned(message):
        hold = Hold(1, world.now - 1.0, Finding(reasons.REJECTED, message))
        world.holds = Holds({gate_of("pods", "worker"): hold})
        return world.plan(cluster).actions

    assert [type(one) for one in planned("Pod x: violates PodSecurity")] == [Create]
    assert [type(one) for one in planned(FULL.replace("count/pods", "pods"))] == [Create]
    (delete,) = planned(FULL)
    assert (delete.name, delete.reason) == (FIRST, reasons.HISTORY_LIMIT)


def test_failed_pod_whose_sidecar_runs_on_is_replaced():
    """It would hold its resources and its address."""
    cluster, world = running({"worker": 1})
    containers = [{"name": "task", "image": "image:1"}, {"name": "proxy", "image": "proxy:1"}]
    world.edit("Pod", FIRST, {"spec": {"containers": containers}})
    ended = {"name": "task", "state": {"terminated": {"exitCode": 1}}}
    world.pod_runs(FIRST, containerStatuses=[ended, {"name": "proxy", "state": {"running": {}}}])
    world.now += world.plan(cluster).wake_after
    (action,) = world.plan(cluster).actions
    assert (action.name, bool(action.replaces)) == (FIRST, True)


def test_live_pod_of_a_predecessor_blocks_its_task():
    """Two pods of one address must not run together, whatever their names; one that has ended no longer runs."""
    cluster, world = running({"worker": 1})
    del world.objects["Pod", FIRST]
    old = make_child("Pod", f"{FIRST}-r1", owner="uid-of-the-one-before")
    old["metadata"]["ownerReferences"][0]["name"] = "demo"
    world.create("Pod", old)
    (place,) = world.roster(cluster).of(cluster.jobs[0])
    assert (place.stage, place.name) == (Stage.PREDECESSOR, f"{FIRST}-r1")
    world.pod_ends(f"{FIRST}-r1", "Failed")
    (place,) = world.roster(cluster).of(cluster.jobs[0])
    assert (place.stage, place.name) == (Stage.MISSING, FIRST)


def test_pod_that_is_turned_away_again_and_again_waits_longer_each_time():
    """Otherwise, a node without room would get pods in a loop; the delay counts from the end that was seen."""
    cluster, world = running({"worker": 2})
    world.edit("Pod", FIRST, {"metadata": {"annotations": {naming.ANNOTATION_ATTEMPT: "3"}}})
    world.pod_ends(FIRST, "Failed", reason="OutOfcpu", containerStatuses=None)
    planned = world.plan(cluster)
    assert planned.actions == ()
    assert 4.0 <= planned.wake_after <= 5.0
    assert "was disrupted" in planned.findings[0].message
    world.now += planned.wake_after
    assert [one.reason for one in world.plan(cluster).actions] == [reasons.POD_DISRUPTED]
