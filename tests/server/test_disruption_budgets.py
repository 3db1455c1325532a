"""Disruption budgets: the response of the eviction API for a job with a budget, and the life of the budgets."""

import pytest
from kubernetes.client.exceptions import ApiException
from support.lives import await_pods_left, launch_running
from support.objects import DISRUPTION_BUDGETS, PODS
from support.waiting import eventually
from support.world import World

pytestmark = pytest.mark.usefixtures("operator")


def keeping(least: int | str, replicas: int = 2, **fields: object) -> dict[str, object]:
    return {"replicas": replicas, "disruptionBudget": {"minAvailable": least}, **fields}


def evict(world: World, pod: str) -> str:
    """Evict a pod as ``kubectl drain`` does; return the server's rejection, or ""."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": world.namespace}}
    try:
        world.objects.request("POST", PODS.path(world.namespace, pod, "eviction"), body)
    except ApiException as refused:
        return str(refused.body) if refused.status == 429 else f"not by a budget: {refused}"
    return ""


def await_healthy(world: World, name: str, count: int) -> None:
    """Wait until Kubernetes' disruption controller counts this number of healthy pods for a budget."""
    eventually(
        lambda: (world.get(DISRUPTION_BUDGETS, name) or {}).get("status", {}),
        lambda s: s.get("currentHealthy") == count and s.get("observedGeneration"),
        what=f"{count} pods of {name} are healthy",
    )


def test_drain_takes_what_the_budget_leaves(world, kubelet):
    """Of two parameter servers none can be evicted, of two workers one at a time, of the others each."""
    uids = launch_running(world, kubelet, "c", {"chief": {}, "ps": keeping("100%"), "worker": keeping(1)})
    await_healthy(world, "c-ps", 2)
    await_healthy(world, "c-worker", 2)
    assert "needs 2 healthy pods and has 2 currently" in evict(world, "c-ps-1")
    assert not evict(world, "c-worker-0")
    # The controller counts the eviction a moment later; until then the API server rejects it with another message.
    eventually(
        lambda: evict(world, "c-worker-1"),
        lambda said: "needs 1 healthy pods and has 1 currently" in said,
        what="the second worker is kept while the first is away",
    )
    assert not evict(world, "c-chief-0")
    kubelet.stop("c-worker-0", "c-chief-0")
    world.await_replaced("c-worker-0", uids["c-worker-0"])
    kubelet.run("c-worker-0")
    await_healthy(world, "c-worker", 2)
    assert not evict(world, "c-worker-1")
    assert world.uid("c-ps-1") == uids["c-ps-1"]


def test_unready_pod_can_be_evicted(world, kubelet):
    launch_running(world, kubelet, "c", {"worker": keeping("100%")})
    await_healthy(world, "c-worker", 2)
    kubelet.unready("c-worker-1")
    await_healthy(world, "c-worker", 1)
    assert not evict(world, "c-worker-1")
    assert evict(world, "c-worker-0")


def test_suspension_and_end_are_held_up_by_no_budget(world, kubelet):
    """The operator deletes pods and evicts none; a finished cluster does not have a budget."""
    launch_running(world, kubelet, "c", {"chief": keeping(1, replicas=1), "ps": keeping("100%")}, cleanPodPolicy="None")
    await_healthy(world, "c-ps", 2)
    world.edit("c", {"suspend": True})
    world.await_condition("c", "Suspended", status="True")
    await_pods_left(world, kubelet, "c", [])
    world.edit("c", {"suspend": False})
    world.await_pods_of("c", ["c-chief-0", "c-ps-0", "c-ps-1"])
    kubelet.run("c-chief-0", "c-ps-0", "c-ps-1")
    kubelet.succeed("c-chief-0")
    world.await_ended("c", "Succeeded", "TasksSucceeded")
    eventually(lambda: not least(world), what="the budgets are gone")
    assert not evict(world, "c-ps-0")


def least(world: World) -> dict[str, int]:
    return {name: body["spec"]["minAvailable"] for name, body in world.disruption_budgets().items()}
