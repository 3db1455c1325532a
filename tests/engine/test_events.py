"""Events: a short summary of actions."""

import pytest
from decisions.in_memory import InMemoryWorld, make_cluster, running

from tfcluster_operator.engine.journal import summary_of
from tfcluster_operator.plan.actions import Delete, Patch

BOTH = [
    ("FailedPodKept", "kept 1 Pod: demo-worker-0; kubectl logs shows what they left"),
    ("PodFailed", "restarted in 1 Pod: demo-worker-0-r1"),
]
MIXED = [
    Patch("Pod", "a", "1", {}, "ViewChanged"),
    Delete("Pod", "c", "3", "ScaledDown"),
    Patch("Pod", "b", "2", {}, "ViewChanged"),
    Patch("Pod", "d", "4", {}, "Repaired"),
]


@pytest.mark.parametrize(
    ("workers", "pods"),
    [
        (4, "5 Pods: demo-chief-0, demo-worker-0, demo-worker-1, and 2 more"),
        (2, "3 Pods: demo-chief-0, demo-worker-0, demo-worker-1"),
    ],
)
def test_actions_of_a_plan_are_reported_by_reason(workers, pods):
    """Three names are listed, and the rest is counted."""
    plan = InMemoryWorld().plan(make_cluster({"chief": 1, "worker": workers}))
    words = f"created 1 Service: demo; created 2 ConfigMaps: demo-chief, demo-worker; created {pods}"
    assert list(summary_of(plan.actions)) == [("Created", words)]


@pytest.mark.parametrize(
    ("limit", "fails", "events"),
    [
        (0, True, [("PodFailed", "replaced 1 Pod: demo-worker-0")]),
        (1, True, BOTH),
        (1, False, [("PodDisrupted", "replaced 1 Pod: demo-worker-0")]),
    ],
    ids=["a failed pod is replaced", "a failed pod is kept", "a user deletes a pod"],
)
def test_recreated_pod_has_its_own_event(limit, fails, events):
    cluster, world = running({"worker": 1}, failedPodsHistoryLimit=limit)
    if fails:
        world.pod_ends("demo-worker-0", "Failed")
        world.now += world.plan(cluster).wake_after
    else:
        world.delete("Pod", "demo-worker-0", force=True)
    assert list(summary_of(world.plan(cluster).actions)) == events


def test_updates_and_deletions_of_one_kind_and_reason_are_one_event():
    updates, deletion = ("ViewChanged", "updated 2 Pods: a, b"), ("ScaledDown", "deleted 1 Pod: c")
    assert list(summary_of(MIXED)) == [updates, deletion, ("Repaired", "updated 1 Pod: d")]
    assert list(summary_of(())) == []
