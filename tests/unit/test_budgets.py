"""The PodDisruptionBudgets of a cluster: what each job's keeps at work, and what becomes of them."""

from __future__ import annotations

import pytest
from unit.in_memory import InMemoryWorld, make_body, make_cluster, settled

from tfcluster_operator.model import reasons
from tfcluster_operator.model.actions import Delete, Patch
from tfcluster_operator.model.parse import InvalidSpecError, parse
from tfcluster_operator.model.spec import TFCluster

KIND = "PodDisruptionBudget"


def guarded(least: int | str = 1, *, replicas: int = 4, **spec: object) -> TFCluster:
    """Make a cluster of one chief and some workers, of which so many are to stay at work."""
    workers = {"replicas": replicas, "disruptionBudget": {"minAvailable": least}}
    return make_cluster({"chief": 1, "worker": workers}, **spec)


def kept(world: InMemoryWorld) -> dict[str, int]:
    """Give how many pods each budget keeps."""
    return {name: body["spec"]["minAvailable"] for (kind, name), body in world.objects.items() if kind == KIND}


def test_budget_protects_the_pods_of_its_job():
    """One PodDisruptionBudget, of the job that declares one; a pod that does not work is protected by none."""
    world = settled(guarded(2))

    assert world.names(KIND) == {"demo-worker"}
    body = world.objects[KIND, "demo-worker"]
    assert body["apiVersion"] == "policy/v1"
    assert body["spec"] == {
        "minAvailable": 2,
        "selector": {"matchLabels": {"tfcluster.dev/cluster": "demo", "tfcluster.dev/job": "worker"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    assert body["metadata"]["ownerReferences"][0]["kind"] == "TFCluster"
    assert body["metadata"]["labels"].items() >= body["spec"]["selector"]["matchLabels"].items()


@pytest.mark.parametrize(
    ("least", "replicas", "number"),
    [(1, 4, 1), (4, 4, 4), (9, 4, 4), ("100%", 4, 4), ("50%", 5, 3), ("1%", 4, 1), ("10%", 30, 3)],
)
def test_share_is_rounded_up_and_never_more_than_there_are(least, replicas, number):
    """Kubernetes rounds minAvailable up, too; more than all tasks would be no other promise than all."""
    assert kept(settled(guarded(least, replicas=replicas))) == {"demo-worker": number}


def test_budget_follows_the_replicas():
    """A share is of the tasks that are declared now."""
    world = settled(guarded("50%", replicas=4))
    world.settle(guarded("50%", replicas=8))

    assert kept(world) == {"demo-worker": 4}


def test_completed_tasks_are_not_kept_at_work():
    """Of three workers that stay, two have ended well: the third may not be held back from a drain by them."""
    cluster = guarded(3, replicas=3, successPolicy={"jobs": ["chief"]})
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Succeeded")
    world.pod_ends("demo-worker-1", "Succeeded")
    world.settle(cluster)

    assert kept(world) == {"demo-worker": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"minAvailable": 1},
        {"maxUnavailable": 1, "minAvailable": None},
        {"selector": {"matchLabels": {"app": "other"}}},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        {"unhealthyPodEvictionPolicy": "IfHealthyBudget"},
    ],
)
def test_edited_budget_is_put_right(change):
    """Whatever somebody writes into it is written back, and what they added goes."""
    cluster = guarded(2)
    world = settled(cluster)
    before = world.objects[KIND, "demo-worker"]["spec"]
    world.edit(KIND, "demo-worker", {"spec": change})

    (patch,) = world.plan(cluster).actions
    assert isinstance(patch, Patch)
    assert patch.reason == reasons.BUDGET_CHANGED
    world.settle(cluster)
    assert world.objects[KIND, "demo-worker"]["spec"] == before


def test_budget_that_lost_its_labels_is_found_and_labelled():
    """Without our label no watch shows it."""
    cluster = guarded(2)
    world = settled(cluster)
    world.edit(KIND, "demo-worker", {"metadata": {"labels": None}})

    (patch,) = world.plan(cluster).actions
    assert (patch.reason, set(patch.change)) == (reasons.REPAIRED, {"metadata"})


def test_budget_that_nothing_declares_is_deleted():
    """The job declares none any more, or is gone."""
    for cluster in (make_cluster({"chief": 1, "worker": 4}), make_cluster({"chief": 1})):
        world = settled(guarded(2))
        deleted = [one for one in world.plan(cluster).actions if isinstance(one, Delete) and one.kind == KIND]
        assert [(one.name, one.reason) for one in deleted] == [("demo-worker", reasons.UNUSED)]


def test_name_of_anothers_budget_is_told_and_holds_up_no_pod():
    """It is left alone; the pods do not wait for it."""
    world = InMemoryWorld()
    world.create(KIND, {"metadata": {"name": "demo-worker"}, "spec": {"minAvailable": 1}})
    cluster = guarded(2)
    world.apply_all(world.plan(cluster).actions, cluster)

    (finding,) = world.plan(cluster).findings
    assert finding.reason == reasons.NAME_TAKEN
    assert "PodDisruptionBudget demo-worker" in finding.message
    assert "demo-worker-0" in world.names("Pod")
    assert kept(world) == {"demo-worker": 1}


def test_finished_cluster_protects_no_pod():
    """What is left to run after the end may be evicted: nothing holds up a drain for ever."""
    cluster = guarded(4, cleanPodPolicy="None", successPolicy={"jobs": ["chief"]})
    world = settled(cluster)
    world.pod_ends("demo-chief-0", "Succeeded")
    world.settle(cluster)

    assert world.names(KIND) == set()
    assert "demo-worker-0" in world.names("Pod")


@pytest.mark.parametrize("value", ["0%", "101%", "half", "-1%", True, [], {}])
def test_wrong_number_is_told_by_its_path(value):
    """The CRD refuses it; another CRD may let it through."""
    body = make_body({"worker": {"disruptionBudget": {"minAvailable": value}}})
    with pytest.raises(InvalidSpecError) as refused:
        parse(body)
    assert "spec.jobs.worker.disruptionBudget.minAvailable" in str(refused.value)
