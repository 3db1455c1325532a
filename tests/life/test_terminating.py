"""Pods that do not terminate: a node that never confirms, a finalizer, and when the operator uses force.

A pod on the node of the simulated kubelet stays Terminating until that confirms its end: a dead node never does.
"""

import pytest
from support.lives import await_another_pass, launch_running
from support.objects import PODS
from support.rbac import OPERATOR_USER
from support.waiting import eventually
from support.world import World

pytestmark = pytest.mark.usefixtures("operator")


def delete_soon(world: World, pod: str) -> None:
    """Delete a pod with a grace period of one second, independent of its template."""
    world.objects.delete(PODS, world.namespace, pod, grace_seconds=1)


def test_stuck_pod_is_reported_and_force_deleted_if_allowed(world, kubelet, audit):
    """Not counted as a failure; the pod's name is not used again before it is deleted."""
    waits = launch_running(world, kubelet, "waits", {"worker": {"replicas": 2}}, backoffLimit=0)
    forces = launch_running(
        world, kubelet, "forces", {"worker": {"replicas": 2}}, backoffLimit=0, forceDeleteAfterSeconds=2
    )
    held = launch_running(world, kubelet, "held", {"worker": {}}, forceDeleteAfterSeconds=0)
    world.patch(PODS, "held-worker-0", {"metadata": {"finalizers": ["example.test/keep"]}})
    for cluster in ("waits", "forces", "held"):
        world.await_condition(cluster, "Ready", status="True")
    position = audit.position()
    for pod in ("waits-worker-1", "forces-worker-1", "held-worker-0"):
        delete_soon(world, pod)

    world.await_replaced("forces-worker-1", forces["forces-worker-1"])
    told = world.await_condition("waits", "Ready", status="False", reason="StuckTerminating")["message"]
    assert "pod waits-worker-1 is still terminating" in told
    assert "kubectl delete pod waits-worker-1 --force" in told
    world.await_condition("held", "Ready", status="False", reason="StuckTerminating")

    assert (world.uid("waits-worker-1"), world.uid("held-worker-0")) == (
        waits["waits-worker-1"],
        held["held-worker-0"],
    ), "force removes no finalizer, and without leave no pod"
    assert world.await_event("forces", "ForcedDeletion")["type"] == "Warning"
    world.await_event("waits", "StuckTerminating")
    forced = [
        w
        for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
        if (w.verb, w.target) == ("delete", "pods")
    ]
    assert {w.name for w in forced} == {"forces-worker-1", "held-worker-0"}
    for name in ("waits", "forces", "held"):
        status = world.status(name)
        assert (status["restarts"], world.condition(name, "Failed")["status"]) == (0, "False")
    world.await_status("forces", lambda s: s["jobs"]["worker"]["disruptions"] == 1, what="one replacement is counted")

    idle = audit.await_quiet(OPERATOR_USER, namespace=world.namespace)
    await_another_pass(world, "waits")
    late = audit.writes(idle, user=OPERATOR_USER, namespace=world.namespace)
    told = [("patch", "tfclusters/status", "waits")]
    assert [(w.verb, w.target, w.name) for w in late] == told, "what is stuck is left alone"

    kubelet.stop("waits-worker-1")
    world.patch(PODS, "held-worker-0", {"metadata": {"finalizers": None}})
    kubelet.stop("held-worker-0")
    world.await_replaced("waits-worker-1", waits["waits-worker-1"])
    world.await_replaced("held-worker-0", held["held-worker-0"])


def test_stuck_pods_of_an_ended_or_suspended_cluster_are_freed_too(world, kubelet):
    """With forceDeleteAfterSeconds, pods that clean-up and suspension delete are forced too."""
    for name in ("ended", "suspended"):
        launch_running(
            world,
            kubelet,
            name,
            {"chief": {}, "worker": {"template": quick()}},
            forceDeleteAfterSeconds=1,
        )
    kubelet.succeed("ended-chief-0")
    world.await_ended("ended", "Succeeded")
    world.edit("suspended", {"suspend": True})
    kubelet.stop("suspended-chief-0")

    eventually(
        lambda: sorted(world.pods_of("ended")), lambda left: left == ["ended-chief-0"], what="the worker is gone"
    )
    eventually(lambda: world.pods_of("suspended"), lambda left: not left, what="the suspended worker is gone")


def quick() -> dict:
    return {
        "spec": {
            "containers": [{"name": "tensorflow", "image": "registry.test/train:1"}],
            "terminationGracePeriodSeconds": 1,
        }
    }


def test_terminating_pod_is_not_created_and_holds_its_name(world, kubelet):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 2}})
    world.await_condition("c", "Ready", status="True")
    world.delete(PODS, "c-worker-0")

    world.await_status("c", lambda s: s["jobs"]["worker"]["created"] == 1, what="the terminating pod does not count")
    assert {name: world.uid(name) for name in world.pods()} == uids
    kubelet.stop("c-worker-0")

    world.await_replaced("c-worker-0", uids["c-worker-0"])
