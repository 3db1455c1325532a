"""The PodDisruptionBudgets of a cluster: the number of available tasks per job, and their life."""

import pytest
from decisions.in_memory import InMemoryWorld, make_cluster, settled

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.plan.actions import Patch

KIND = "PodDisruptionBudget"


def guarded(least: int | str = 1, *, replicas: int = 4, **spec: object) -> TFCluster:
    workers = {"replicas": replicas, "disruptionBudget": {"minAvailable": least}}
    return make_cluster({"chief": 1, "worker": workers}, **spec)


def kept(world: InMemoryWorld) -> dict[str, int]:
    return {name: body["spec"]["minAvailable"] for (kind, name), body in world.objects.items() if kind == KIND}


@pytest.mark.parametrize(
    ("least", "replicas", "number"),
    [(1, 4, 1), (4, 4, 4), (9, 4, 4), ("100%", 4, 4), ("50%", 5, 3), ("1%", 4, 1), ("10%", 30, 3)],
)
def test_share_is_rounded_up_and_never_more_than_there_are(least, replicas, number):
    """Kubernetes also rounds minAvailable up; a number above the total would mean the same as all."""
    world = settled(guarded(least, replicas=9))
    world.settle(guarded(least, replicas=replicas))
    assert kept(world) == {"demo-worker": number}


@pytest.mark.parametrize(
    ("ended", "spec", "left"),
    [
        # Of three workers, two have succeeded: they must not block a drain of the third one.
        (["worker-0", "worker-1"], {}, {"demo-worker": 1}),
        # Pods that run after the end can be evicted: nothing blocks a drain forever.
        (["chief-0"], {"cleanPodPolicy": "None"}, {}),
    ],
)
def test_finished_tasks_are_excluded_from_the_budget(ended, spec, left):
    cluster = guarded(3, replicas=3, successPolicy={"jobs": ["chief"]}, **spec)
    world = settled(cluster)
    for task in ended:
        world.pod_ends(f"demo-{task}", "Succeeded")
    world.settle(cluster)
    assert kept(world) == left
    assert "demo-worker-2" in world.names("Pod")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spec": {"minAvailable": 1}}, reasons.BUDGET_CHANGED),
        ({"spec": {"maxUnavailable": 1, "minAvailable": None}}, reasons.BUDGET_CHANGED),
        ({"spec": {"selector": {"matchLabels": {"app": "other"}}}}, reasons.BUDGET_CHANGED),
        ({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}}, reasons.BUDGET_CHANGED),
        ({"spec": {"unhealthyPodEvictionPolicy": "IfHealthyBudget"}}, reasons.BUDGET_CHANGED),
        ({"metadata": {"labels": None}}, reasons.REPAIRED),
    ],
)
def test_edited_budget_is_repaired(change, reason):
    cluster, world = guarded(2), settled(guarded(2))
    before = world.objects[KIND, "demo-worker"]
    world.edit(KIND, "demo-worker", change)
    (patch,) = world.plan(cluster).actions
    assert isinstance(patch, Patch)
    assert patch.reason == reason
    world.settle(cluster)
    after = world.objects[KIND, "demo-worker"]
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])


def test_foreign_budget_is_reported_and_does_not_block_pods():
    world = InMemoryWorld()
    world.create(KIND, {"metadata": {"name": "demo-worker"}, "spec": {"minAvailable": 1}})
    cluster = guarded(2)
    world.apply_all(world.plan(cluster).actions, cluster)
    (finding,) = world.plan(cluster).findings
    assert finding.reason == reasons.NAME_TAKEN
    assert "PodDisruptionBudget demo-worker" in finding.message
    assert "demo-worker-0" in world.names("Pod")
    assert kept(world) == {"demo-worker": 1}
