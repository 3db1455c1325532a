"""Gangs on the real scheduler of scheduler-plugins, next to kube-scheduler, on a simulated node with eight GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.control_planes import administrator_of, namespace_on, operator_on
from support.objects import POD_GROUPS_OF_PLUGINS, PODS, Object, Objects
from support.operator_process import ALL_NAMESPACES, OperatorProcess
from support.waiting import eventually
from support.world import World

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

GANG = {"gang": {}}
LABEL = "scheduling.x-k8s.io/pod-group"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A separate server, without PodGroups of Kubernetes, with those of scheduler-plugins and their scheduler."""
    from local_kubernetes import scheduler_plugins
    from local_kubernetes.control_plane import start

    with start(tmp_path_factory.mktemp("scheduler-plugins"), kwok_nodes=1) as plane:
        scheduler_plugins.define_pod_groups(plane)
        scheduler_plugins.start(plane)
        yield plane


@pytest.fixture(scope="module")
def everything(server: ControlPlane) -> Objects:
    """Administrator access to a server with the CRD."""
    return administrator_of(server, gangs="scheduling.x-k8s.io")


@pytest.fixture(scope="module")
def running(
    server: ControlPlane, everything: Objects, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """The operator, configured for scheduler-plugins."""
    del everything
    with operator_on(
        server, tmp_path_factory.mktemp("operator"), arguments=(*ALL_NAMESPACES, "--gang-scheduler", "SchedulerPlugins")
    ) as process:
        yield process


@pytest.fixture
def gangs(everything: Objects, running: OperatorProcess) -> Iterator[World]:
    del running
    with namespace_on(everything) as world:
        yield world


def asking(replicas: int, gpus: int = 2) -> Object:
    """Declare tasks that request this number of GPUs each."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "replicas": replicas,
        "template": {"spec": {"containers": [{"name": "tensorflow", "image": "image:1", **limits}]}},
    }


def placed(world: World, cluster: str) -> set[str]:
    pods = world.pods_of(cluster).items()
    return {name for name, pod in pods if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]}


def await_ready(world: World, cluster: str) -> None:
    ready = {"status": "True"}
    # Its scheduler retries rejected pods after a back-off.
    eventually(
        lambda: world.condition(cluster, "Ready"),
        lambda told: told.items() >= ready.items(),
        what=f"{cluster} is ready",
        within=120,
    )


def await_waiting(world: World, cluster: str) -> str:
    def told() -> str:
        condition = world.condition(cluster, "Ready")
        return str(condition["message"]) if condition.get("reason") == "WaitingForGang" else ""

    lacking = "Insufficient nvidia.com/gpu"
    return eventually(told, lambda words: lacking in words, what=f"{cluster} says what it lacks")


def test_second_gang_waits_whole_until_the_first_has_gone(gangs):
    """Each needs six of eight GPUs: one runs, no pod of the other has a node, and its status has the request."""
    gangs.launch("first", {"worker": asking(3)}, scheduling=GANG)
    await_ready(gangs, "first")
    gangs.launch("second", {"worker": asking(3)}, scheduling=GANG)

    told = await_waiting(gangs, "second")
    waits = "gang second.0 (scheduler scheduler-plugins-scheduler) waits until 3 tasks can be scheduled together"
    assert told.startswith(f"{waits} with 6 nvidia.com/gpu: ")
    assert len(gangs.pods_of("second")) == 3
    assert placed(gangs, "second") == set()

    gangs.remove("first")
    await_ready(gangs, "second")


def test_lost_task_of_a_running_gang_comes_back_alone(gangs):
    """Its scheduler places it without a PodGroup, although the PodGroup still asks for three pods."""
    gangs.launch("c", {"worker": asking(3)}, scheduling=GANG)
    await_ready(gangs, "c")
    eventually(
        lambda: gangs.demand(POD_GROUPS_OF_PLUGINS, "c.0")["metadata"]["annotations"].get("tfcluster.dev/placed"),
        what="the PodGroup is marked",
    )
    lost = gangs.uid("c-worker-1")
    gangs.delete(PODS, "c-worker-1")
    gangs.await_replaced("c-worker-1", lost)

    await_ready(gangs, "c")
    assert LABEL not in gangs.demand(PODS, "c-worker-1")["metadata"]["labels"]
    assert gangs.demand(PODS, "c-worker-1")["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
    assert gangs.demand(POD_GROUPS_OF_PLUGINS, "c.0")["spec"] == {"minMember": 3}
