"""Events: what was done, summed up in a few words."""

from __future__ import annotations

from unit.in_memory import InMemoryWorld, make_cluster, settled

from tfcluster_operator.kube.events import told
from tfcluster_operator.model.actions import Delete, Patch


def test_what_a_plan_did_is_told_by_reason():
    """A new cluster's creation is one event, however many tasks it has."""
    plan = InMemoryWorld().plan(make_cluster({"chief": 1, "worker": 7}))

    assert list(told(plan.actions)) == [
        (
            "Created",
            (
                "created 1 Service: demo; created 2 ConfigMaps: demo-chief, demo-worker; "
                "created 8 Pods: demo-chief-0, demo-worker-0, demo-worker-1, demo-worker-2 and 4 more"
            ),
        ),
    ]


def test_four_names_are_all_told():
    """Only what is beyond the fourth is counted."""
    plan = InMemoryWorld().plan(make_cluster({"worker": 4}))

    assert list(told(plan.actions))[-1][1].endswith("demo-worker-2, demo-worker-3")


def test_a_replacement_is_told_as_one():
    """A failed pod that is deleted and created again was replaced."""
    cluster = make_cluster({"worker": 1}, failedPodsHistoryLimit=0)
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Failed")
    world.now += world.plan(cluster).wake_after

    assert list(told(world.plan(cluster).actions)) == [("PodFailed", "replaced 1 Pod: demo-worker-0")]


def test_a_failed_pod_that_is_kept_is_named():
    """The Events say which log tells why, and in which pod the task goes on."""
    cluster = make_cluster({"worker": 1})
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Failed")
    world.now += world.plan(cluster).wake_after

    assert list(told(world.plan(cluster).actions)) == [
        ("FailedPodKept", "kept 1 Pod: demo-worker-0; kubectl logs shows what they left"),
        ("PodFailed", "restarted in 1 Pod: demo-worker-0-r1"),
    ]


def test_a_pod_made_again_after_somebody_deleted_it_is_told_as_replaced():
    """It is gone when its successor is made: only the reason tells the two apart."""
    cluster = make_cluster({"worker": 1})
    world = settled(cluster)
    world.objects.pop(("Pod", "demo-worker-0"))

    assert list(told(world.plan(cluster).actions)) == [("PodDisrupted", "replaced 1 Pod: demo-worker-0")]


def test_updates_and_deletions_of_one_kind_and_reason_are_one_event():
    """Each reason is told by itself."""
    actions = [
        Patch("Pod", "a", "1", {}, "ViewChanged"),
        Delete("Pod", "c", "3", "ScaledDown"),
        Patch("Pod", "b", "2", {}, "ViewChanged"),
        Patch("Pod", "d", "4", {}, "Repaired"),
    ]

    assert list(told(actions)) == [
        ("ViewChanged", "updated 2 Pods: a, b"),
        ("ScaledDown", "deleted 1 Pod: c"),
        ("Repaired", "updated 1 Pod: d"),
    ]


def test_nothing_done_is_nothing_told():
    """A pass without actions posts no event."""
    assert list(told(())) == []
