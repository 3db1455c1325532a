"""Gangs on the real scheduler of scheduler-plugins, next to kube-scheduler, on a simulated node with eight GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.control_planes import administrator_of
from support.manifests import gpu_tasks
from support.objects import POD_GROUPS_OF_PLUGINS, PODS, Objects
from support.operator_process import ALL_NAMESPACES
from support.waiting import eventually
from support.world import World

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

GANG = {"gang": {}}
LABEL = "scheduling.x-k8s.io/pod-group"


@pytest.fixture(scope="module")
def own_server_options() -> dict[str, int]:
    return {"kwok_nodes": 1}


@pytest.fixture(scope="module")
def own_server(own_server: ControlPlane) -> ControlPlane:
    """Without PodGroups of Kubernetes, with those of scheduler-plugins and their scheduler."""
    from local_kubernetes import scheduler_plugins

    scheduler_plugins.define_pod_groups(own_server)
    scheduler_plugins.start(own_server)
    return own_server


@pytest.fixture(scope="module")
def own_objects(own_server: ControlPlane) -> Objects:
    return administrator_of(own_server, gangs="scheduling.x-k8s.io")


@pytest.fixture(scope="module")
def own_operator_options() -> dict[str, Any]:
    return {"arguments": (*ALL_NAMESPACES, "--gang-scheduler", "SchedulerPlugins")}


def await_waiting(world: World, cluster: str) -> str:
    def told() -> str:
        condition = world.condition(cluster, "Ready")
        return str(condition["message"]) if condition.get("reason") == "WaitingForGang" else ""

    lacking = "Insufficient nvidia.com/gpu"
    return eventually(told, lambda words: lacking in words, what=f"{cluster} says what it lacks")


def test_second_gang_waits_whole_until_the_first_has_gone(home):
    """Each needs six of eight GPUs: one runs, no pod of the other has a node, and its status has the request."""
    home.launch("first", {"worker": gpu_tasks(3)}, scheduling=GANG)
    home.await_condition("first", "Ready", status="True")
    home.launch("second", {"worker": gpu_tasks(3)}, scheduling=GANG)

    told = await_waiting(home, "second")
    waits = "gang second.0 (scheduler scheduler-plugins-scheduler) waits until 3 tasks can be scheduled together"
    assert told.startswith(f"{waits} with 6 nvidia.com/gpu: ")
    assert len(home.pods_of("second")) == 3
    assert home.placed("second") == set()

    home.remove("first")
    home.await_condition("second", "Ready", status="True")


def test_lost_task_of_a_running_gang_comes_back_alone(home):
    """Its scheduler places it without a PodGroup, although the PodGroup still asks for three pods."""
    home.launch("c", {"worker": gpu_tasks(3)}, scheduling=GANG)
    home.await_condition("c", "Ready", status="True")
    eventually(
        lambda: home.demand(POD_GROUPS_OF_PLUGINS, "c.0")["metadata"]["annotations"].get("tfcluster.dev/placed"),
        what="the PodGroup is marked",
    )
    lost = home.uid("c-worker-1")
    home.delete(PODS, "c-worker-1")
    home.await_replaced("c-worker-1", lost)

    home.await_condition("c", "Ready", status="True")
    assert LABEL not in home.demand(PODS, "c-worker-1")["metadata"]["labels"]
    assert home.demand(PODS, "c-worker-1")["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
    assert home.demand(POD_GROUPS_OF_PLUGINS, "c.0")["spec"] == {"minMember": 3}
