"""Churn: labels removed during other losses, deletions during a reconcile, permanent rejections."""

import asyncio
from typing import Any

import pytest
from simulation import dialect
from simulation.dialect import CLUSTER, NAMESPACE
from simulation.plans import Plan, Step
from simulation.workloads import job, ready
from simulation.world import World
from support.async_tests import in_world, simulated, within
from support.memory_kubernetes import Refusal


async def _ready(world: World, replicas: int, **spec: Any) -> None:
    world.nodes.hurried = True
    world.declare({"jobs": {"worker": job(replicas)}, **spec})
    assert await world.await_quiet(ready, 60.0)


def _running(world: World) -> list[str]:
    return sorted(
        one["metadata"]["name"]
        for one in world.pods()
        if one["status"].get("phase") == "Running" and "deletionTimestamp" not in one["metadata"]
    )


def _workers(*indices: int) -> list[str]:
    return [f"{CLUSTER}-worker-{index}" for index in indices]


def _created_since(world: World, since: float, what: str = "pods") -> list[str]:
    return [
        one.name or one.resource
        for one in world.requests_since(since)
        if one.user == dialect.OPERATOR and one.verb == "create" and one.resource == what
    ]


@in_world
async def test_objects_are_not_created_after_the_cluster_was_deleted(world: World):
    """Its status says so: "its objects are no longer created or repaired"."""
    world.nodes.hurried = True
    world.declare({"jobs": {"worker": job(300)}})
    while len(world.pods()) < 50:  # noqa: ASYNC110 - the world is another's, and time is virtual
        await asyncio.sleep(0.001)
    world.kube.delete("tfclusters", NAMESPACE, CLUSTER, user="user")
    await asyncio.sleep(0.05)  # the event takes 4 ms, and requests that wait for their turn are still sent
    told_at = world.elapsed()
    await world.await_silence(60.0)
    assert _created_since(world, told_at) == []


@pytest.mark.parametrize("first", ["cluster", "pods"])
@pytest.mark.parametrize("late", [0.0, 5.0])
@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
@in_world
async def test_pods_are_not_created_for_a_deleted_cluster(world: World, propagation, late, first):
    """For any order of events, also if pods are deleted by force at the same moment."""
    await _ready(world, 3)
    world.faults.see_late("tfclusters", late)
    deleted_at = world.elapsed()
    if first == "cluster":
        world.kube.delete("tfclusters", NAMESPACE, CLUSTER, propagation=propagation, user="user")
    for name in _workers(*range(3)):
        world.kube.delete("pods", NAMESPACE, name, grace=0, user="user")
    if first == "pods":
        await asyncio.sleep(0.002)  # the operator receives these events before the cluster's deletion
        world.kube.delete("tfclusters", NAMESPACE, CLUSTER, propagation=propagation, user="user")
    await world.await_silence(60.0)
    assert (_created_since(world, deleted_at), [one["metadata"]["name"] for one in world.pods()]) == ([], [])


@within(lambda: simulated(Plan("create", Step(99), "leader dies")))
async def test_new_leader_does_not_create_pods_for_a_deleted_cluster(world: World):
    await world.await_leader()
    await _ready(world, 3)
    await world.await_silence(3600.0)
    world.acting().stop()
    world.faults.see_late("tfclusters", 40.0)
    deleted_at = world.elapsed()
    world.kube.delete("tfclusters", NAMESPACE, CLUSTER, user="user")
    await world.await_silence(120.0)
    assert _created_since(world, deleted_at) == []


@in_world
async def test_deleted_cluster_is_requested_only_once(world: World):
    await _ready(world, 3)
    world.faults.see_late("tfclusters", 60.0)
    began = world.elapsed()
    world.kube.delete("tfclusters", NAMESPACE, CLUSTER, user="user")
    for name in _workers(*range(3)):
        world.kube.delete("pods", NAMESPACE, name, grace=0, user="user")
    await world.await_silence(60.0)
    asked = [one for one in world.requests_since(began) if one.user == dialect.OPERATOR]
    assert sum(one.resource == "tfclusters" and one.verb in {"get", "list", "patch"} for one in asked) <= 2


@pytest.mark.parametrize("after_ms", [0, 2, 4, 6, 7, 8, 9, 10, 12, 14, 16, 20])
@in_world
async def test_cluster_that_is_kept_by_a_finalizer_says_that_it_is_being_deleted(world: World, after_ms):
    """Also if the operator was about to correct something when the deletion was requested."""
    await _ready(world, 2)
    change = {"metadata": {"finalizers": ["example.com/keep"]}}
    world.kube.patch("tfclusters", NAMESPACE, CLUSTER, change, user="somebody")
    await world.await_silence(5.0)
    world.remove("services", CLUSTER)
    await asyncio.sleep(after_ms / 1000)
    world.remove("tfclusters", CLUSTER)
    await world.await_silence(600.0)
    assert dialect.condition(world.cluster(), "Ready")["reason"] == "Deleting"


def _lose_a_pod(world: World) -> None:
    world.kube.delete("pods", NAMESPACE, f"{CLUSTER}-worker-0", grace=0, user="user")


def _declare_another(world: World) -> None:
    world.declare({"jobs": {"worker": job(1)}}, name="another")


def _fail_a_task(world: World) -> None:
    ended = {"name": "tensorflow", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    status = {"status": {"phase": "Failed", "containerStatuses": [ended]}}
    world.kube.patch("pods", NAMESPACE, f"{CLUSTER}-worker-0", status, subresource="status", user="kubelet")


# Kopf's watch reports a new one a little later than ours a lost pod.
@pytest.mark.parametrize(
    ("act", "awaited", "at_most"),
    [
        (_lose_a_pod, ("create", "pods", f"{CLUSTER}-worker-0"), 40),
        (_declare_another, ("create", "services", "another"), 70),
        (_fail_a_task, ("patch", "tfclusters", CLUSTER), 40),
    ],
    ids=["a lost pod", "a new cluster", "the record of a failure"],
)
@in_world
async def test_what_is_urgent_does_not_wait_for_the_status_of_other_clusters(world: World, act, awaited, at_most):
    """A hundred clusters must be reported as not ready: a new pod must not wait for all of these writes."""
    world.nodes.hurried = True
    for number in range(100):
        world.declare({"jobs": {"worker": job(1)}}, name=f"other-{number}")
    await _ready(world, 1)
    began = world.elapsed()
    for number in range(100):
        told = {"conditions": [{"type": "Ready", "status": "False"}]}
        name = f"other-{number}-worker-0"
        world.kube.patch("pods", NAMESPACE, name, {"status": told}, subresource="status", user="kubelet")
    await world.await_silence(1.0)  # then they are reported, with 32 concurrent writes
    act(world)
    await world.await_silence(30.0)
    asked = [one for one in world.requests_since(began) if one.user == dialect.OPERATOR and one.resource != "events"]
    writes = [(one.verb, one.resource, one.name) for one in asked if one.verb in {"create", "patch"}]
    assert writes.index(awaited) <= at_most
    assert sum(one[:2] == ("patch", "tfclusters") for one in writes) >= 100


@in_world
async def test_cluster_whose_kind_is_not_served_for_a_while_is_not_taken_for_gone(world: World):
    """The server returns 404 also for existing ones: a pod that was lost in the meantime is replaced afterwards."""

    def not_served(request: Any) -> None:
        if (request.user, request.resource) == (dialect.OPERATOR, "tfclusters"):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")

    await _ready(world, 2)
    world.kube.authorize.append(not_served)
    world.kube.delete("pods", NAMESPACE, f"{CLUSTER}-worker-0", grace=0, user="user")
    await world.await_silence(10.0)
    world.kube.authorize.remove(not_served)
    await world.await_silence(60.0)
    assert _running(world) == _workers(0, 1)
