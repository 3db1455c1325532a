"""Gangs: which tasks get their places together, which PodGroup they have, and who waits for them."""

from __future__ import annotations

import pytest
from unit.in_memory import InMemoryWorld, make_body, make_cluster, settled

from tfcluster_operator.model import reasons
from tfcluster_operator.model.actions import CreatePod, CreatePodGroup, Delete, Patch
from tfcluster_operator.model.parse import InvalidSpecError, parse
from tfcluster_operator.model.spec import TFCluster

KIND = "PodGroup"


def gang(jobs: object = None, *, least: dict[str, int] | None = None, **spec: object) -> TFCluster:
    """Make a cluster whose tasks get their places together."""
    wanted = {"chief": 1, "ps": 2, "worker": 3} if jobs is None else jobs
    return make_cluster(wanted, scheduling={"gang": {} if least is None else {"minTasks": least}}, **spec)


def started(cluster: TFCluster) -> InMemoryWorld:
    """Make a world in which all is made that is made before the scheduler has found places."""
    world = InMemoryWorld()
    world.settle(cluster)
    return world


def groups(world: InMemoryWorld) -> dict[str, int]:
    """Give how many pods each PodGroup waits for."""
    found = {name: body["spec"]["schedulingPolicy"] for (kind, name), body in world.objects.items() if kind == KIND}
    return {name: policy["gang"]["minCount"] for name, policy in found.items()}


def members(world: InMemoryWorld) -> dict[str, str]:
    """Give the PodGroup of each pod, "" of one that is placed for itself."""
    pods = {name: body["spec"] for (kind, name), body in world.objects.items() if kind == "Pod"}
    return {name: spec.get("schedulingGroup", {}).get("podGroupName", "") for name, spec in pods.items()}


def test_all_tasks_get_their_places_together():
    """One PodGroup that counts every pod, made before the first of them; its priority is left to the default."""
    cluster = gang()
    first = InMemoryWorld().plan(cluster).actions
    kinds = [type(one) for one in first if isinstance(one, CreatePodGroup | CreatePod)]
    assert kinds == [CreatePodGroup, *[CreatePod] * 6]

    world = started(cluster)
    assert groups(world) == {"demo.0": 6}
    assert set(members(world).values()) == {"demo.0"}
    body = world.objects[KIND, "demo.0"]
    assert body["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert body["spec"] == {"schedulingPolicy": {"gang": {"minCount": 6}}}
    assert body["metadata"]["ownerReferences"][0]["kind"] == "TFCluster"


def test_without_a_gang_each_pod_is_placed_for_itself():
    """Nothing asks for PodGroups."""
    world = settled(make_cluster())

    assert groups(world) == {}
    assert set(members(world).values()) == {""}


def test_surplus_tasks_and_the_evaluator_wait_for_the_gang():
    """Of three workers one belongs to the gang; the evaluator with none: they start when it has its places."""
    cluster = gang({"chief": 1, "worker": 3, "evaluator": 1}, least={"worker": 1})
    world = started(cluster)
    assert members(world) == {"demo-chief-0": "demo.0", "demo-worker-0": "demo.0"}
    assert groups(world) == {"demo.0": 2}

    world.gang_is_placed("demo.0")
    world.settle(cluster)
    later = {"demo-worker-1": "", "demo-worker-2": "", "demo-evaluator-0": ""}
    assert members(world) == {"demo-chief-0": "demo.0", "demo-worker-0": "demo.0", **later}
    assert groups(world) == {"demo.0": 2}


def test_evaluator_belongs_to_the_gang_if_it_is_named():
    """What minTasks says counts, up to the number of tasks."""
    assert groups(started(gang({"chief": 1, "evaluator": 1}, least={"evaluator": 1}))) == {"demo.0": 2}
    assert groups(started(gang({"chief": 1, "worker": 4}, least={"worker": 9}))) == {"demo.0": 5}
    assert groups(started(gang({"chief": 1, "worker": 4}, least={"worker": 0}))) == {"demo.0": 1}


def test_waiting_gang_is_told_with_what_it_asks_for():
    """How many tasks, what they ask for, and the scheduler's words."""
    template = {"spec": {"containers": [{"name": "t", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}
    cluster = gang({"worker": {"replicas": 3, "template": template}})
    world = started(cluster)
    assert world.plan(cluster).findings == ()

    world.gang_waits("demo.0", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu")
    (finding,) = world.plan(cluster).findings
    assert finding.reason == reasons.WAITING_FOR_GANG
    assert finding.message == (
        "gang demo.0 waits for room for 3 tasks at once, which ask for 6 nvidia.com/gpu: "
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
    )

    world.gang_is_placed("demo.0")
    assert world.plan(cluster).findings == ()


def test_lost_pod_comes_back_for_itself():
    """Two of a running gang are lost: neither waits for the other."""
    cluster = gang()
    world = started(cluster)
    world.gang_is_placed("demo.0")
    for lost in ("demo-worker-0", "demo-ps-1"):
        world.delete("Pod", lost, force=True)
    world.settle(cluster)

    assert {name for name, group in members(world).items() if not group} == {"demo-worker-0", "demo-ps-1"}
    assert groups(world) == {"demo.0": 6}


def test_added_tasks_are_placed_for_themselves_once_the_gang_has_its_places():
    """Before that they belong to it, and it counts them."""
    world = started(gang({"worker": 2}))
    world.settle(gang({"worker": 3}))
    assert groups(world) == {"demo.0": 3}
    assert set(members(world).values()) == {"demo.0"}

    world.gang_is_placed("demo.0")
    world.settle(gang({"worker": 4}))
    assert members(world)["demo-worker-3"] == ""
    assert groups(world) == {"demo.0": 3}


def test_fewer_tasks_are_waited_for_after_scaling_down():
    """A gang that is too large for the nodes gets its places once it is made smaller."""
    world = started(gang({"worker": 4}))
    world.settle(gang({"worker": 2}))

    assert groups(world) == {"demo.0": 2}


def test_resumed_cluster_waits_for_places_again():
    """Each start is a round of its own: a PodGroup that was placed is never scheduled together again."""
    cluster = gang({"worker": 2})
    world = started(cluster)
    world.gang_is_placed("demo.0")
    world.settle(gang({"worker": 2}, suspend=True))
    assert groups(world) == {}

    world.settle(cluster)
    assert groups(world) == {"demo.1": 2}
    assert set(members(world).values()) == {"demo.1"}


def test_jobs_that_restart_together_wait_for_places_together():
    """A failure restarts the whole cluster; one of ps alone is a round of ps alone, and never that of another."""
    scopes = {"ps": {"replicas": 2, "restartScope": "Job"}, "worker": {"replicas": 2, "restartScope": "Cluster"}}
    cluster = gang(scopes)
    world = started(cluster)
    world.gang_is_placed("demo.0")

    world.pod_ends("demo-ps-0", "Failed")
    world.settle(cluster)
    assert groups(world) == {"demo.0": 4, "demo.1": 2}
    assert {name.rpartition("-r")[0] or name for name, of in members(world).items() if of == "demo.1"} == {
        "demo-ps-0",
        "demo-ps-1",
    }
    world.gang_is_placed("demo.1")

    world.pod_ends("demo-worker-1", "Failed")
    world.settle(cluster)
    assert groups(world) == {"demo.2": 4}


def test_job_that_starts_after_others_is_a_gang_of_its_own():
    """It cannot wait together with those that it waits for."""
    cluster = gang({"ps": 2, "worker": {"replicas": 3, "startAfter": ["ps"]}})
    world = started(cluster)
    assert members(world) == {"demo-ps-0": "demo.0", "demo-ps-1": "demo.0"}
    assert groups(world) == {"demo.0": 2, "demo.worker.0": 3}

    world.gang_is_placed("demo.0")
    world.settle(cluster)
    assert {of for name, of in members(world).items() if "worker" in name} == {"demo.worker.0"}


def test_gang_that_is_declared_while_pods_wait_takes_them_in():
    """What has a node stays, and is not waited for; what waits for one is replaced."""
    alone = make_cluster({"worker": 3})
    world = InMemoryWorld()
    world.settle(alone)
    world.pod_runs("demo-worker-0")
    cluster = gang({"worker": 3})
    deleted = [one for one in world.plan(cluster).actions if isinstance(one, Delete)]
    assert {(one.name, one.reason) for one in deleted} == {
        ("demo-worker-1", reasons.GANG_CHANGED),
        ("demo-worker-2", reasons.GANG_CHANGED),
    }
    world.settle(cluster)

    assert members(world) == {"demo-worker-0": "", "demo-worker-1": "demo.0", "demo-worker-2": "demo.0"}
    assert groups(world) == {"demo.0": 2}
    assert world.ledger.of("worker").replaced == 0


def test_gang_that_is_declared_over_running_tasks_changes_nothing():
    """Its tasks have their places."""
    world = settled(make_cluster({"worker": 3}))

    assert world.plan(gang({"worker": 3})).actions == ()


def test_gang_that_is_declared_no_more_lets_its_pods_go():
    """Pods that wait are placed for themselves; those that run stay as they are."""
    world = started(gang({"worker": 2}))
    alone = make_cluster({"worker": 2})
    world.settle(alone)
    assert groups(world) == {}
    assert set(members(world).values()) == {""}

    world = started(gang({"worker": 2}))
    world.gang_is_placed("demo.0")
    world.settle(alone)
    assert groups(world) == {}
    assert set(members(world).values()) == {"demo.0"}


def test_pod_that_admission_takes_out_of_the_gang_is_not_replaced_for_ever():
    """Each successor lacks it, too: that is a quarrel, which is told."""
    cluster = gang({"worker": 1})
    world = started(cluster)
    world.edit("Pod", "demo-worker-0", {"spec": {"schedulingGroup": None}})

    (delete,) = world.plan(cluster).actions
    assert isinstance(delete, Delete)
    assert (delete.reason, delete.toward) == (reasons.GANG_CHANGED, "demo.0")


def test_edited_group_is_put_right_while_it_waits():
    """How many it waits for is ours; after that it is of no use."""
    cluster = gang()
    world = started(cluster)
    world.edit(KIND, "demo.0", {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
    (patch,) = world.plan(cluster).actions
    assert isinstance(patch, Patch)
    assert patch.reason == reasons.GANG_CHANGED
    world.settle(cluster)
    assert groups(world) == {"demo.0": 6}

    world.gang_is_placed("demo.0")
    world.edit(KIND, "demo.0", {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
    assert world.plan(cluster).actions == ()


def test_deleted_group_is_made_again_while_its_pods_wait():
    """Without it they would wait for ever; once they have places nobody needs it."""
    cluster = gang({"worker": 2})
    world = started(cluster)
    world.delete(KIND, "demo.0")
    world.settle(cluster)
    assert groups(world) == {"demo.0": 2}

    world.gang_is_placed("demo.0")
    world.delete(KIND, "demo.0")
    assert world.plan(cluster).actions == ()
    world.delete("Pod", "demo-worker-0", force=True)
    world.settle(cluster)
    assert (groups(world), members(world)["demo-worker-0"]) == ({}, "")


def test_group_that_is_kept_by_its_finalizer_is_let_go():
    """Kubernetes keeps a deleted PodGroup while pods wait with it, and none of them gets a place: they start again."""
    cluster = gang({"worker": 2})
    world = started(cluster)
    world.edit(KIND, "demo.0", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    deletes = world.plan(cluster).actions
    assert {(one.kind, one.name, one.reason) for one in deletes if isinstance(one, Delete)} == {
        ("Pod", f"demo-worker-{index}", reasons.GANG_CHANGED) for index in (0, 1)
    }
    world.apply_all(deletes, cluster)
    assert not any(isinstance(one, CreatePod) for one in world.plan(cluster).actions)

    world.end_graceful_deletions()
    world.settle(cluster)
    assert (groups(world), set(members(world).values())) == ({"demo.0": 2}, {"demo.0"})


def test_group_that_goes_after_its_gang_got_places_takes_no_pod_along():
    """Its pods are about to be bound, or are."""
    cluster = gang({"worker": 2})
    world = started(cluster)
    placed = [{"type": "PodGroupInitiallyScheduled", "status": "True"}]
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.edit(KIND, "demo.0", {"metadata": leaving, "status": {"conditions": placed}})

    assert not any(isinstance(one, Delete) for one in world.plan(cluster).actions)


def test_priority_is_that_of_the_pods():
    """The scheduler refuses a group of another priority than its pods'; it cannot be edited."""

    def at(priority: str) -> TFCluster:
        template = {"spec": {"priorityClassName": priority, "containers": [{"name": "task", "image": "image:1"}]}}
        return gang({"worker": {"replicas": 2, "template": template}})

    world = started(at("high"))
    assert world.objects[KIND, "demo.0"]["spec"]["priorityClassName"] == "high"
    world.settle(at("low"))
    assert world.objects[KIND, "demo.0"]["spec"]["priorityClassName"] == "low"
    assert set(members(world).values()) == {"demo.0"}

    world.settle(at(""))
    assert "priorityClassName" not in world.objects[KIND, "demo.0"]["spec"]
    world.edit(KIND, "demo.0", {"spec": {"priorityClassName": "default-of-kubernetes"}})
    assert world.plan(at("")).actions == ()


def test_server_without_groups_starts_no_task_of_a_gang():
    """A promise that cannot be kept is told, and tried again; tasks that run go on."""
    cluster = gang({"worker": 2})
    world = InMemoryWorld()
    world.stores.of[KIND].have_none("the API server does not serve podgroups of scheduling.k8s.io/v1beta1", None)
    world.apply_all(world.plan(cluster).actions, cluster)
    planned = world.plan(cluster)

    assert world.names("Pod") == set()
    (finding,) = planned.findings
    assert finding.reason == reasons.GANG_UNAVAILABLE
    assert "does not serve podgroups" in finding.message
    assert planned.wake_after == 20.0

    running = settled(make_cluster({"worker": 2}))
    running.stores.of[KIND].have_none("it does not", None)
    running.delete("Pod", "demo-worker-0", force=True)
    assert running.plan(cluster).findings[0].reason == reasons.GANG_UNAVAILABLE


def test_anothers_group_of_our_name_is_told():
    """It is left alone, and no pod joins it."""
    world = InMemoryWorld()
    world.create(KIND, {"metadata": {"name": "demo.0"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
    cluster = gang({"worker": 2})
    world.apply_all(world.plan(cluster).actions, cluster)

    (finding,) = world.plan(cluster).findings
    assert finding.reason == reasons.NAME_TAKEN
    assert "PodGroup demo.0" in finding.message
    assert world.names("Pod") == set()


def test_finished_cluster_has_no_group():
    """Nothing of it waits for places any more."""
    cluster = gang({"worker": 2})
    world = started(cluster)
    world.gang_is_placed("demo.0")
    for pod in ("demo-worker-0", "demo-worker-1"):
        world.pod_ends(pod, "Succeeded")
    world.settle(cluster)

    assert groups(world) == {}


@pytest.mark.parametrize(
    ("jobs", "spec", "words"),
    [
        ({"worker": 1}, {"minTasks": {"wroker": 1}}, "spec.scheduling.gang.minTasks: 'wroker' is not declared"),
        ({"worker": 1}, {"minTasks": {"worker": -1}}, "spec.scheduling.gang.minTasks.worker"),
        ({"worker": 1}, "yes", "spec.scheduling.gang"),
    ],
)
def test_wrong_gang_is_told_by_its_path(jobs, spec, words):
    """An older CRD lets it through."""
    with pytest.raises(InvalidSpecError) as refused:
        parse(make_body(jobs, scheduling={"gang": spec}))
    assert words in str(refused.value)


@pytest.mark.parametrize("field", ["priorityClassName", "schedulerName"])
def test_gang_of_several_priorities_or_schedulers_is_refused(field):
    """The scheduler would never place it; a job that is no part of the gang may have its own."""
    template = {"spec": {field: "own", "containers": [{"name": "task", "image": "image:1"}]}}
    jobs = {"chief": 1, "worker": {"replicas": 2, "template": template}}
    with pytest.raises(InvalidSpecError) as refused:
        gang(jobs)
    assert f"must have the same {field}" in str(refused.value)

    assert groups(started(gang(jobs, least={"worker": 0}))) == {"demo.0": 1}
    assert gang({**jobs, "worker": {**jobs["worker"], "startAfter": ["chief"]}}).gang is not None


def test_template_with_a_group_of_its_own():
    """Without a gang it is the user's; with one it is one too many."""
    spec = {"schedulingGroup": {"podGroupName": "mine"}, "containers": [{"name": "task", "image": "image:1"}]}
    jobs = {"worker": {"replicas": 2, "template": {"spec": spec}}}
    with pytest.raises(InvalidSpecError, match="remove one of the two"):
        gang(jobs)

    cluster = make_cluster(jobs)
    world = started(cluster)
    assert set(members(world).values()) == {"mine"}
    assert world.plan(cluster).actions == ()
