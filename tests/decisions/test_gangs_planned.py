"""Gangs: which tasks are scheduled together, their PodGroups, and the tasks that wait for them."""

from operator import methodcaller as does
from typing import Any

import pytest
from decisions.in_memory import LEAVING, InMemoryWorld, creates, make_cluster, settled

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.parse import InvalidSpecError
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.plan.actions import Delete

KIND = "PodGroup"


def gang(jobs: object = None, *, least: dict[str, int] | None = None, **spec: object) -> TFCluster:
    wanted = {"chief": 1, "ps": 2, "worker": 3} if jobs is None else jobs
    for name, count in (least or {}).items():
        of = {"replicas": wanted[name]} if isinstance(wanted[name], int) else wanted[name]
        wanted = {**wanted, name: {**of, "minReplicas": count}}
    return make_cluster(wanted, scheduling={"gang": {}}, **spec)


def started(cluster: TFCluster) -> InMemoryWorld:
    world = InMemoryWorld()
    world.settle(cluster)
    return world


def groups(world: InMemoryWorld) -> dict[str, int]:
    found = {name: body["spec"]["schedulingPolicy"] for (kind, name), body in world.objects.items() if kind == KIND}
    return {name: policy["gang"]["minCount"] for name, policy in found.items()}


def members(world: InMemoryWorld) -> dict[str, str]:
    """Return the PodGroup of each pod by its task, "" without one."""
    pods = {name: body["spec"] for (kind, name), body in world.objects.items() if kind == "Pod"}
    found = {name: spec.get("schedulingGroup", {}).get("podGroupName", "") for name, spec in pods.items()}
    return {name.partition("-r")[0].removeprefix("demo-"): group for name, group in found.items()}


def of(group: str, *tasks: str) -> dict[str, str]:
    return dict.fromkeys(tasks, group)


PLACED, PLACED_AGAIN = does("gang_is_placed", "demo.0"), does("gang_is_placed", "demo.1")
GROUP_LOST, FIRST_RUNS = does("delete", KIND, "demo.0"), does("pod_runs", "demo-worker-0")
FEWER = {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
LEAVES, IS_EDITED = does("edit", KIND, "demo.0", LEAVING), does("edit", KIND, "demo.0", FEWER)


def lost(*tasks: str) -> list[Any]:
    return [does("delete", "Pod", f"demo-{task}", force=True) for task in tasks]


def ends(task: str, phase: str) -> Any:
    return does("pod_ends", f"demo-{task}", phase)


ALL = ("chief-0", "ps-0", "ps-1", "worker-0", "worker-1", "worker-2")
TWO, THREE, ALONE = gang({"worker": 2}), gang({"worker": 3}), make_cluster({"worker": 3})
SOME = gang({"chief": 1, "worker": 3, "evaluator": 1}, least={"worker": 1})
SCOPES = {"ps": {"replicas": 2, "restartScope": "Job"}, "worker": {"replicas": 2, "restartScope": "Cluster"}}
RESTARTS = gang(SCOPES)
AFTER = gang({"ps": 2, "worker": {"replicas": 3, "startAfter": ["ps"]}})
PS, PAIR, TRIO = ("ps-0", "ps-1"), ("worker-0", "worker-1"), ("worker-0", "worker-1", "worker-2")
ENDS = [ends(task, "Succeeded") for task in PAIR]


@pytest.mark.parametrize(
    ("steps", "waited_for", "placed"),
    [
        ([gang()], {"demo.0": 6}, of("demo.0", *ALL)),
        ([make_cluster({"worker": 2})], {}, of("", *PAIR)),
        # Surplus tasks and the evaluator start when the gang is scheduled.
        ([SOME], {"demo.0": 2}, of("demo.0", "chief-0", "worker-0")),
        (
            [SOME, PLACED],
            {"demo.0": 2},
            {**of("demo.0", "chief-0", "worker-0"), **of("", "worker-1", "worker-2", "evaluator-0")},
        ),
        ([gang({"chief": 1, "evaluator": 1}, least={"evaluator": 1})], {"demo.0": 2}, None),
        ([gang({"chief": 1, "worker": 4}, least={"worker": 9})], {"demo.0": 5}, None),
        ([gang({"chief": 1, "worker": 4}, least={"worker": 0})], {"demo.0": 1}, None),
        # Each pod that a scheduled gang loses is replaced without a gang.
        (
            [gang(), PLACED, *lost("worker-0", "ps-1")],
            {"demo.0": 6},
            {**of("demo.0", *ALL), **of("", "worker-0", "ps-1")},
        ),
        ([TWO, THREE], {"demo.0": 3}, of("demo.0", *TRIO)),
        ([TWO, PLACED, THREE], {"demo.0": 2}, {**of("demo.0", *PAIR), "worker-2": ""}),
        ([gang({"worker": 4}), TWO], {"demo.0": 2}, of("demo.0", *PAIR)),
        # A PodGroup is scheduled together only once: each start has a new one.
        ([TWO, PLACED, gang({"worker": 2}, suspend=True)], {}, {}),
        ([TWO, PLACED, gang({"worker": 2}, suspend=True), TWO], {"demo.1": 2}, of("demo.1", *PAIR)),
        (
            [RESTARTS, PLACED, ends("ps-0", "Failed")],
            {"demo.0": 4, "demo.1": 2},
            {**of("demo.0", *PAIR), **of("demo.1", *PS)},
        ),
        ([RESTARTS, PLACED, ends("ps-0", "Failed"), PLACED_AGAIN, ends("worker-1", "Failed")], {"demo.2": 4}, None),
        ([AFTER], {"demo.0": 2, "demo.worker.0": 3}, of("demo.0", *PS)),
        ([AFTER, PLACED], {"demo.0": 2, "demo.worker.0": 3}, {**of("demo.0", *PS), **of("demo.worker.0", *TRIO)}),
        # A pod with a node stays, and is not counted; a pod that waits for a node is replaced.
        ([ALONE, FIRST_RUNS, THREE], {"demo.0": 2}, {"worker-0": "", **of("demo.0", "worker-1", "worker-2")}),
        ([ALONE, *(does("pod_runs", f"demo-{task}") for task in TRIO), THREE], {}, of("", *TRIO)),
        ([THREE, ALONE], {}, of("", *TRIO)),
        ([THREE, PLACED, ALONE], {}, of("demo.0", *TRIO)),
        ([gang(), IS_EDITED], {"demo.0": 6}, of("demo.0", *ALL)),
        ([gang(), PLACED, IS_EDITED], {"demo.0": 1}, of("demo.0", *ALL)),
        ([TWO, GROUP_LOST], {"demo.0": 2}, of("demo.0", *PAIR)),
        ([TWO, PLACED, GROUP_LOST, *lost("worker-0")], {}, {"worker-0": "", "worker-1": "demo.0"}),
        # Kubernetes keeps a deleted PodGroup while pods wait with it, and schedules none of them.
        ([TWO, LEAVES], {"demo.0": 2}, of("demo.0", *PAIR)),
        ([TWO, PLACED, *ENDS], {}, None),
    ],
)
def test_tasks_that_start_together_wait_for_places_together(steps, waited_for, placed):
    world, cluster = InMemoryWorld(), make_cluster()
    for step in steps:
        if isinstance(step, TFCluster):
            cluster = step
        else:
            step(world)
        world.settle(cluster)
    assert groups(world) == waited_for
    assert placed is None or members(world) == placed


def test_waiting_gang_is_reported_with_its_requests():
    template = {"spec": {"containers": [{"name": "t", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}
    cluster = gang({"worker": {"replicas": 3, "template": template}})
    world = started(cluster)
    assert world.plan(cluster).findings == ()
    world.gang_waits("demo.0", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu")
    (finding,) = world.plan(cluster).findings
    assert finding.reason == reasons.WAITING_FOR_GANG
    assert finding.message == (
        "gang demo.0 waits until 3 tasks can be scheduled together with 6 nvidia.com/gpu: "
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
    )
    world.gang_is_placed("demo.0")
    assert world.plan(cluster).findings == ()


def test_pods_that_a_new_gang_replaces_do_not_count_as_lost():
    world = started(ALONE)
    world.settle(THREE)
    assert (set(members(world).values()), world.ledger.of("worker").replaced) == ({"demo.0"}, 0)


def test_pod_that_admission_removes_from_the_gang_is_deleted():
    cluster = gang({"worker": 1})
    world = started(cluster)
    world.edit("Pod", "demo-worker-0", {"spec": {"schedulingGroup": None}})
    (delete,) = world.plan(cluster).actions
    assert isinstance(delete, Delete)
    assert (delete.reason, delete.toward) == (reasons.GANG_CHANGED, "demo.0")


def test_group_that_is_kept_by_its_finalizer_is_let_go():
    cluster = gang({"worker": 2})
    world = started(cluster)
    LEAVES(world)
    deletes = world.plan(cluster).actions
    assert {(one.kind, one.name, one.reason) for one in deletes if isinstance(one, Delete)} == {
        ("Pod", f"demo-worker-{index}", reasons.GANG_CHANGED) for index in (0, 1)
    }
    world.apply_all(deletes, cluster)
    assert not any(creates(one, "Pod") for one in world.plan(cluster).actions)


def test_deleted_group_of_a_scheduled_gang_keeps_its_pods():
    world = started(TWO)
    placed = [{"type": "PodGroupInitiallyScheduled", "status": "True"}]
    world.edit(KIND, "demo.0", {**LEAVING, "status": {"conditions": placed}})
    assert not any(isinstance(one, Delete) for one in world.plan(TWO).actions)


def test_priority_that_admission_gives_a_group_of_pods_without_one_stays():
    def at(priority: str) -> TFCluster:
        template = {"spec": {"priorityClassName": priority, "containers": [{"name": "task", "image": "image:1"}]}}
        return gang({"worker": {"replicas": 2, "template": template}})

    world = started(at("low"))
    world.settle(at(""))
    assert "priorityClassName" not in world.objects[KIND, "demo.0"]["spec"]
    assert set(members(world).values()) == {"demo.0"}
    world.edit(KIND, "demo.0", {"spec": {"priorityClassName": "default-of-kubernetes"}})
    assert world.plan(at("")).actions == ()


NEAR = {"topologyKey": "rack"}


@pytest.mark.parametrize(
    ("colocate", "key"),
    [
        (NEAR, ["rack"]),
        ({**NEAR, "whenUnsatisfiable": "ScheduleAnyway"}, []),
        ({**NEAR, "jobs": ["worker"]}, []),  # the gang's other tasks can be anywhere
    ],
)
def test_gang_that_must_be_in_one_domain_says_so_in_its_group(colocate, key):
    def at(near: dict[str, Any] | None) -> TFCluster:
        return make_cluster({"chief": 1, "worker": 3}, scheduling={"gang": {}, "colocate": near})

    world = started(at(colocate))
    constraints = world.objects[KIND, "demo.0"]["spec"].get("schedulingConstraints", {})
    assert [one["key"] for one in constraints.get("topology", ())] == key
    # It cannot be edited: the group is created again, unless the server has dropped the field.
    again = [one for one in world.plan(at({"topologyKey": "zone"})).actions if isinstance(one, Delete)]
    assert [one.name for one in again if one.kind == KIND] == ["demo.0"] * len(key)


def test_server_without_groups_blocks_the_gang_and_the_next_pod_of_one_that_is_declared():
    for world in (InMemoryWorld(), settled(make_cluster({"worker": 2}))):
        world.stores.of[KIND].have_none("the API server does not serve podgroups of scheduling.k8s.io/v1beta1", None)
        if world.names("Pod"):
            world.delete("Pod", "demo-worker-0", force=True)
        planned = world.plan(TWO)
        assert not any(creates(one, "Pod") for one in planned.actions)
        (finding,) = planned.findings
        assert (finding.reason, planned.wake_after) == (reasons.GANG_UNAVAILABLE, 20.0)
        assert "does not serve podgroups" in finding.message


@pytest.mark.parametrize("field", ["priorityClassName", "schedulerName"])
def test_gang_with_several_priorities_or_schedulers_is_rejected(field):
    """The scheduler would never place it; a job outside of the gang can have another one."""
    template = {"spec": {field: "own", "containers": [{"name": "task", "image": "image:1"}]}}
    jobs = {"chief": 1, "worker": {"replicas": 2, "template": template}}
    with pytest.raises(InvalidSpecError) as refused:
        gang(jobs)
    assert f"must have the same {field}" in str(refused.value)
    assert groups(started(gang(jobs, least={"worker": 0}))) == {"demo.0": 1}
    assert gang({**jobs, "worker": {**jobs["worker"], "startAfter": ["chief"]}}).gang is not None


def test_template_with_a_group_of_its_own():
    spec = {"schedulingGroup": {"podGroupName": "mine"}, "containers": [{"name": "task", "image": "image:1"}]}
    jobs = {"worker": {"replicas": 2, "template": {"spec": spec}}}
    cluster = make_cluster(jobs)
    world = started(cluster)
    assert set(members(world).values()) == {"mine"}
    assert world.plan(cluster).actions == ()
