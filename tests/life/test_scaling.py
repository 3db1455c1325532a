"""Scaling and editing a running cluster: which objects change, which do not, and the order."""

import pytest
from support.manifests import pod_template
from support.objects import Object
from support.rbac import OPERATOR_USER
from support.waiting import eventually
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("operator")

FILTERED = {
    "chief": {},
    "worker": {"replicas": 3, "maxReplicas": 8, "deviceFilters": ["/job:ps", "/job:chief"]},
    "ps": {"replicas": 2, "deviceFilters": ["/job:worker", "/job:chief"]},
}


def launch(world: World, jobs: dict[str, Object] | None = None, **spec: object) -> None:
    world.launch("c", jobs or {"worker": {"replicas": 3}}, **spec)
    world.await_settled("c")


def versions(world: World) -> dict[str, str]:
    return {name: found["metadata"]["resourceVersion"] for name, found in world.config_maps().items()}


def uids(world: World) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in world.pods().items()}


def writes(audit, world: World, position: int) -> list:
    return [w for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace) if w.resource != "events"]


def test_scale_up_touches_only_who_sees_the_new_task(world, audit):
    launch(world, FILTERED)
    before, views = uids(world), versions(world)
    position = audit.position()

    generation = world.scale("c", replicas=4)
    world.await_settled("c")
    world.await_condition("c", "MembershipPublished", status="True")

    assert uids(world) == before | {"c-worker-3": world.uid("c-worker-3")}
    assert {name for name, version in versions(world).items() if version != views[name]} == {"c-chief", "c-ps"}
    touched = {w.name for w in writes(audit, world, position) if (w.verb, w.target) == ("patch", "pods")}
    assert touched == set(task_names("c", chief=1, ps=2))
    epochs = {job: world.view("c", job)["epoch"] for job in FILTERED}
    assert epochs == {"chief": generation, "worker": 1, "ps": generation}
    assert (world.status("c")["epoch"], len(world.view("c", "ps")["jobs"]["worker"])) == (generation, 4)


def test_scale_down_tells_survivors_before_pods_go(world, kubelet, audit):
    launch(world, {"chief": {}, "worker": {"replicas": 5}})
    kubelet.run(*task_names("c", chief=1, worker=5))
    world.await_status("c", lambda s: (s["readyTasks"], s["tasks"]) == (6, 6), what="all are ready")
    before, position = uids(world), audit.position()

    world.scale("c", replicas=2)
    eventually(lambda: world.view("c", "chief")["epoch"], lambda epoch: epoch == 2, what="the view is rewritten")
    going = task_names("c", worker=5)[2:]
    eventually(
        lambda: [name for name in going if "deletionTimestamp" not in world.pods()[name]["metadata"]],
        lambda left: not left,
        what="the surplus pods are asked to go",
    )
    log = writes(audit, world, position)
    kubelet.stop(*going)
    world.await_pods(task_names("c", chief=1, worker=2))
    assert uids(world) == {name: before[name] for name in task_names("c", chief=1, worker=2)}
    published = [w for w in log if w.resource == "configmaps"]
    touched = [w for w in log if (w.verb, w.target) == ("patch", "pods")]
    deleted = [w for w in log if (w.verb, w.resource) == ("delete", "pods")]

    assert {w.name for w in published} == {"c-chief", "c-worker"}
    assert {w.name for w in touched} == set(task_names("c", chief=1, worker=2))
    assert max(w.finished for w in published) <= min(w.received for w in touched)
    assert max(w.finished for w in touched) <= min(w.received for w in deleted)


def test_scale_and_back_before_anything_happened_ends_where_it_began(world):
    launch(world)
    for replicas in (6, 1, 5, 2, 4):
        world.scale("c", replicas=replicas)

    world.await_pods(task_names("c", worker=4))
    world.await_settled("c")
    assert len(world.view("c", "worker")["jobs"]["worker"]) == 4


def test_edit_that_adds_a_job(world):
    launch(world)

    world.edit("c", {"jobs": {"ps": {"replicas": 2, "template": pod_template()}}})
    world.await_pods(task_names("c", ps=2, worker=3))
    world.await_settled("c")

    assert sorted(world.config_maps()) == ["c-ps", "c-worker"]
    assert len(world.view("c", "worker")["jobs"]["ps"]) == 2


def test_suspend_while_pods_still_terminate_resumes_cleanly(world, kubelet):
    launch(world, {"worker": {"replicas": 2}})
    kubelet.run(*task_names("c", worker=2))
    old = uids(world)
    world.edit("c", {"suspend": True})
    eventually(
        lambda: [p for p in world.pods().values() if "deletionTimestamp" not in p["metadata"]],
        lambda left: not left,
        what="the pods are asked to go",
    )

    world.edit("c", {"suspend": False})
    kubelet.stop(*task_names("c", worker=2))
    world.await_pods(task_names("c", worker=2))

    assert not set(uids(world).values()) & set(old.values())
