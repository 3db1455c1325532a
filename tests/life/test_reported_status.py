"""The status: counts, conditions, epoch, GPUs and the fields that /scale reads."""

import pytest
from support.kubernetes_minor import require_kubernetes
from support.manifests import pod_template
from support.objects import TFCLUSTERS

pytestmark = pytest.mark.usefixtures("operator")

GPU = pod_template(resources={"limits": {"nvidia.com/gpu": "2"}})


def test_status_follows_the_pods(world, kubelet):
    """Ready tasks are counted and a missing one is named; Ready holds while all are ready or have finished."""
    world.launch("c", {"chief": {}, "worker": {"replicas": 3}})
    world.await_settled("c")
    kubelet.run("c-chief-0", "c-worker-0", "c-worker-2")
    status = world.await_status("c", lambda s: (s["readyTasks"], s["tasks"]) == (3, 4), what="3 of 4 tasks are ready")
    assert {job: found["ready"] for job, found in status["jobs"].items()} == {"chief": 1, "worker": 2}
    assert "worker-1" in world.condition("c", "Ready")["message"]

    kubelet.run("c-worker-1")
    world.await_condition("c", "Ready", status="True", reason="AllTasksReady")
    kubelet.unready("c-worker-1")
    world.await_condition("c", "Ready", status="False", reason="TasksNotReady")

    kubelet.succeed("c-worker-1")
    status = world.await_status("c", lambda s: s["jobs"]["worker"]["succeeded"] == 1, what="one has succeeded")
    assert (status["readyTasks"], status["jobs"]["worker"]["ready"], status["jobs"]["worker"]["failed"]) == (3, 2, 0)
    world.await_condition("c", "Ready", status="True", reason="AllTasksReady")


def test_edited_status_is_corrected(world, kubelet):
    world.launch("c", {"worker": {"replicas": 2}})
    world.await_settled("c")
    world.objects.patch(
        TFCLUSTERS, world.namespace, "c", {"status": {"readyTasks": 9, "accelerators": 7}}, subresource="status"
    )

    kubelet.run("c-worker-0")

    world.await_status("c", lambda s: (s["readyTasks"], s["accelerators"]) == (1, 0), what="the status is true again")


def test_status_accelerators_are_the_healthy_ones_that_pods_hold(world, kubelet):
    """They count healthy devices of running pods; the view lists a task that has lost one, without a new epoch."""
    require_kubernetes("1.36", "device health")
    world.launch("c", {"worker": {"replicas": 2, "template": GPU}, "ps": {}})
    world.await_settled("c")
    kubelet.run("c-worker-0", devices={"nvidia.com/gpu": [("GPU-0", "Healthy"), ("GPU-1", "Healthy")]})
    kubelet.run("c-worker-1", devices={"nvidia.com/gpu": [("GPU-2", "Healthy"), ("GPU-3", "Unhealthy")]})

    status = world.await_status("c", lambda s: s["accelerators"] == 3, what="three GPUs are counted")

    assert {job: found["accelerators"] for job, found in status["jobs"].items()} == {
        "worker": {"nvidia.com/gpu": 3},
        "ps": {},
    }
    view = world.view("c", "ps")
    assert view["accelerators"] == {"worker": {"limits": {"nvidia.com/gpu": 2}, "tasks": {"1": {"nvidia.com/gpu": 1}}}}
    assert view["epoch"] == 1


def test_status_accelerators_fall_back_to_the_limit(world, kubelet):
    world.launch("c", {"worker": {"replicas": 2, "template": GPU}})
    world.await_settled("c")
    kubelet.run("c-worker-0")

    world.await_status("c", lambda s: s["accelerators"] == 2, what="the limit of one running pod is counted")
