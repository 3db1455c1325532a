"""Suspending at creation, while running and while failing, and the state after resuming."""

import pytest
from support.lives import (
    await_all_replaced,
    await_another_pass,
    await_asked_to_go,
    await_pods_left,
    confirm_ends,
    launch_running,
    uids_of,
)
from support.objects import PODS, TFCLUSTERS
from support.rbac import OPERATOR_USER
from support.waiting import eventually
from support.world import task_names

pytestmark = pytest.mark.usefixtures("operator")


def test_suspended_at_creation_nothing_starts(world, audit):
    position = audit.position()
    world.launch("c", {"worker": {"replicas": 2}}, suspend=True)
    world.await_condition("c", "Suspended", status="True", reason="Suspended")
    await_another_pass(world, "c")

    status = world.status("c")
    assert ("startTime" in status, status["restarts"], status["readyTasks"]) == (False, 0, 0)
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Ready": "False",
        "Suspended": "True",
        "Succeeded": "False",
        "Failed": "False",
        "Stalled": "False",
        "MembershipPublished": "True",
        "UpToDate": "True",
        "NameConflict": "False",
    }
    writes = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    made = {w.resource for w in writes if w.verb == "create"} - {"events"}
    assert made == {"services", "networkpolicies", "configmaps"}


def test_suspended_while_running_rests_and_resumes_clean(world, kubelet):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 3}}, backoffLimit=1)
    kubelet.fail("c-worker-2", exit_code=9)
    world.await_replaced("c-worker-2", uids["c-worker-2"])
    kubelet.run("c-worker-2")
    kubelet.succeed("c-worker-0")
    before = world.await_status("c", lambda s: s["jobs"]["worker"]["succeeded"] == 1, what="one is complete")
    assert before["restarts"] == 1

    world.edit("c", {"suspend": True})
    await_pods_left(world, kubelet, "c", [])
    status = world.await_status("c", lambda s: s["jobs"]["worker"]["created"] == 0, what="there is no pod")
    assert ("startTime" in status, status["restarts"], status["jobs"]["worker"]["succeeded"]) == (False, 0, 0)

    world.edit("c", {"suspend": False})
    world.await_pods_of("c", task_names("c", worker=3))
    resumed = world.await_condition("c", "Suspended", status="False", reason="NotSuspended")
    assert resumed
    kubelet.run(*task_names("c", worker=3))
    world.await_condition("c", "Ready", status="True")
    after = world.status("c")
    assert after["startTime"] > before["startTime"]
    kubelet.fail("c-worker-1")
    uid = world.uid("c-worker-1")
    world.await_replaced("c-worker-1", uid)
    assert world.condition("c", "Failed")["status"] == "False", "the budget of one restart is whole again"
    kubelet.fail("c-worker-0")
    world.await_ended("c", "Failed", "BackoffLimitExceeded")


def test_suspended_while_a_task_backs_off(world, kubelet):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 2}})
    kubelet.fail("c-worker-1")
    second = world.await_replaced("c-worker-1", uids["c-worker-1"])
    kubelet.fail("c-worker-1")
    world.await_condition("c", "Ready", status="False", reason="BackingOff")

    world.edit("c", {"suspend": True})
    await_pods_left(world, kubelet, "c", [])
    world.await_condition("c", "Ready", status="False", reason="Suspended")
    world.edit("c", {"suspend": False})

    pods = world.await_pods_of("c", task_names("c", worker=2))
    assert pods["c-worker-1"]["metadata"]["uid"] != second["metadata"]["uid"]
    assert pods["c-worker-1"]["metadata"]["annotations"]["tfcluster.dev/attempt"] == "0"


def test_suspended_while_a_scope_restarts(world, kubelet):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 3, "restartScope": "Job"}})
    kubelet.fail("c-worker-0")
    await_asked_to_go(world, "c-worker-1", "c-worker-2")
    world.edit("c", {"suspend": True})
    # The restart deletes the pods too: their deletion does not prove that the operator observed the edit.
    world.await_condition("c", "Suspended", status="True")
    await_pods_left(world, kubelet, "c", [])
    world.edit("c", {"suspend": False})
    new = await_all_replaced(world, kubelet, "c", uids)
    kubelet.run(*new)

    world.await_condition("c", "Ready", status="True")
    assert world.status("c")["restarts"] == 0
    assert uids_of(world, "c") == new


def test_suspended_by_a_dead_operators_orders(world, kubelet, operator):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 2}})
    launch_running(world, kubelet, "d", {"worker": {"replicas": 2}})
    world.await_settled("d")
    operator.kill()
    world.edit("c", {"suspend": True})
    world.edit("c", {"suspend": False})
    world.edit("d", {"suspend": True})
    operator.start()

    await_pods_left(world, kubelet, "d", [])
    world.await_settled("c")
    assert uids_of(world, "c") == uids


def test_edit_while_suspended_takes_effect_on_resume(world):
    world.launch("c", {"chief": {}, "worker": {"replicas": 2, "maxReplicas": 6}}, suspend=True)
    world.await_condition("c", "Suspended", status="True")
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "registry.test/train:2"}]}}

    generation = world.edit("c", {"jobs": {"worker": {"replicas": 4, "template": template}}})
    world.await_status("c", lambda s: s["observedGeneration"] == generation, what="the edit was seen")
    assert (len(world.view("c", "chief")["jobs"]["worker"]), world.pods_of("c")) == (4, {})
    assert world.condition("c", "UpToDate")["status"] == "True"
    world.edit("c", {"suspend": False})

    pods = world.await_pods_of("c", task_names("c", chief=1, worker=4))
    assert pods["c-worker-3"]["spec"]["containers"][0]["image"] == "registry.test/train:2"


#: Suspend x TTL x deadline: the fields, whether the cluster succeeds before it is suspended, and its end.
COMBINATIONS = {
    "nothing-set": ({}, False, "rests"),
    "deadline": ({"activeDeadlineSeconds": 3}, False, "rests"),
    "ttl": ({"ttlSecondsAfterFinished": 0}, False, "rests"),
    "deadline-and-ttl": ({"activeDeadlineSeconds": 3, "ttlSecondsAfterFinished": 0}, False, "rests"),
    "done": ({}, True, "stays"),
    "done-with-deadline": ({"activeDeadlineSeconds": 5}, True, "stays"),
    "done-with-ttl": ({"ttlSecondsAfterFinished": 4}, True, "goes"),
    "done-with-both": ({"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 4}, True, "goes"),
}


def test_suspend_and_ttl_and_deadline_in_every_combination(world, kubelet):
    for name, (fields, done, _) in COMBINATIONS.items():
        launch_running(world, kubelet, name, {"worker": {}})
        if done:
            kubelet.succeed(f"{name}-worker-0")
            world.await_condition(name, "Succeeded", status="True")
        world.edit(name, {**fields, "suspend": True})
    # A clock inside the world: its deadline is as long as the longest of those that must not fire.
    world.launch("clock", {"worker": {}}, activeDeadlineSeconds=5)
    world.await_ended("clock", "Failed", "DeadlineExceeded")
    await_another_pass(world, *(name for name, (_, _, fate) in COMBINATIONS.items() if fate != "goes"))

    for name, (_, _, fate) in COMBINATIONS.items():
        if fate == "goes":
            world.await_removed(name)
            continue
        confirm_ends(world, kubelet, name)
        conditions = {c["type"]: (c["status"], c["reason"]) for c in world.status(name)["conditions"]}
        assert conditions["Failed"][0] == "False", name
        assert conditions["Suspended"] == (("True", "Suspended") if fate == "rests" else ("False", "Finished")), name
        assert conditions["Succeeded"][0] == ("False" if fate == "rests" else "True"), name


def test_deadline_of_a_resumed_cluster_is_whole(world):
    world.launch("c", {"worker": {}}, suspend=True, activeDeadlineSeconds=1)
    world.launch("clock", {"worker": {}}, activeDeadlineSeconds=2)
    world.await_ended("clock", "Failed")
    assert world.condition("c", "Failed")["status"] == "False"
    created = world.cluster("c")["metadata"]["creationTimestamp"]

    world.edit("c", {"suspend": False})

    status = world.await_ended("c", "Failed", "DeadlineExceeded")
    assert status["startTime"] > created
    assert status["completionTime"] > status["startTime"]


def test_suspended_pods_that_never_go_do_not_come_back(world, kubelet, audit):
    launch_running(world, kubelet, "c", {"worker": {"replicas": 2}})
    world.edit("c", {"suspend": True})
    await_asked_to_go(world, *task_names("c", worker=2))
    position = audit.position()
    kubelet.stop("c-worker-0")
    eventually(lambda: world.get(PODS, "c-worker-0"), lambda pod: pod is None, what="one pod is gone")
    await_another_pass(world, "c")

    assert sorted(world.pods_of("c")) == ["c-worker-1"]
    writes = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    assert [str(w) for w in writes if (w.verb, w.target) == ("create", "pods")] == []
    eventually(
        lambda: world.objects.get(TFCLUSTERS, world.namespace, "c", "scale"),
        lambda scale: scale["status"]["replicas"] == 0,
        what="the terminating pod counts no more",
    )
