"""Pods that end: which are replaced, immediately or after a delay, and which are not."""

from __future__ import annotations

import pytest
from support.lives import remembered
from support.objects import PODS
from support.waiting import eventually
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def running(world, kubelet) -> World:
    world.launch("c", {"worker": {"replicas": 2}})
    world.await_settled("c")
    kubelet.run(*task_names("c", worker=2))
    world.await_status("c", lambda s: (s["readyTasks"], s["tasks"]) == (2, 2), what="both workers are ready")
    return world


def uid_of(world: World, name: str) -> str | None:
    pod = world.get(PODS, name)
    return None if pod is None else pod["metadata"]["uid"]


def await_replacement(world: World, name: str, old: str | None) -> dict:
    eventually(lambda: uid_of(world, name), lambda uid: uid not in {None, old}, what=f"{name} is replaced")
    return world.demand(PODS, name)


@pytest.mark.parametrize("how", ["fail", "evict"])
def test_replacing_an_ended_pod(running, kubelet, how):
    """A failed or evicted pod is replaced with a new one of the same name; the other pod stays."""
    old, neighbour = uid_of(running, "c-worker-1"), uid_of(running, "c-worker-0")

    getattr(kubelet, how)("c-worker-1")
    new = await_replacement(running, "c-worker-1", old)

    assert new["status"]["phase"] == "Pending"
    assert new["spec"]["hostname"] == "c-worker-1"
    assert uid_of(running, "c-worker-0") == neighbour


def test_replacing_a_pod_that_fails_again_and_again_counts_on(running, kubelet):
    """Consecutive failures are counted per task, so that the delay can grow."""
    for attempt in (1, 2):
        old = uid_of(running, "c-worker-1")
        kubelet.fail("c-worker-1")
        await_replacement(running, "c-worker-1", old)
        failing = remembered(running, "c", "worker")["failing"]
        assert {index: of["in_row"] for index, of in failing.items()} == {"1": attempt}


def test_replacing_an_evicted_pod_counts_no_failure(running, kubelet):
    """An eviction is not a failure: it is counted as a replacement, not as a restart."""
    old = uid_of(running, "c-worker-1")
    kubelet.evict("c-worker-1")
    await_replacement(running, "c-worker-1", old)

    status = running.await_status("c", lambda s: s["jobs"]["worker"]["disruptions"], what="the replacement is counted")
    assert (status["jobs"]["worker"]["disruptions"], status["restarts"]) == (1, 0)


def test_replacing_leaves_a_succeeded_pod(running, kubelet, operator):
    """A pod with exit code 0 is not re-created, not even after a restart of the operator."""
    old = uid_of(running, "c-worker-1")
    kubelet.succeed("c-worker-1")
    running.await_status("c", lambda s: s["jobs"]["worker"]["succeeded"] == 1, what="one has succeeded")

    operator.stop()
    operator.start()
    running.launch("later", {"worker": {}})
    running.await_settled("later")

    assert uid_of(running, "c-worker-1") == old


def test_replacing_a_pod_does_not_change_views(running, kubelet):
    """A replaced pod keeps its address: no ConfigMap is written and no other pod is notified."""
    config_map = running.config_maps()["c-worker"]["metadata"]["resourceVersion"]
    neighbour = running.demand(PODS, "c-worker-0")["metadata"]["annotations"]
    old = uid_of(running, "c-worker-1")

    kubelet.fail("c-worker-1")
    await_replacement(running, "c-worker-1", old)

    assert running.config_maps()["c-worker"]["metadata"]["resourceVersion"] == config_map
    assert running.demand(PODS, "c-worker-0")["metadata"]["annotations"] == neighbour


def test_replacing_a_deleted_pod(running, kubelet):
    old = uid_of(running, "c-worker-0")
    running.delete(PODS, "c-worker-0")
    eventually(
        lambda: running.demand(PODS, "c-worker-0")["metadata"].get("deletionTimestamp"), what="the pod terminates"
    )

    kubelet.stop("c-worker-0")

    await_replacement(running, "c-worker-0", old)


def test_replacing_waits_for_a_terminating_pod(running, kubelet):
    """A terminating pod counts as not created, and its task gets a new pod only afterwards."""
    old = uid_of(running, "c-worker-0")
    running.delete(PODS, "c-worker-0")

    running.await_status("c", lambda s: s["jobs"]["worker"]["created"] == 1, what="the terminating pod counts no more")
    assert sorted(running.pods()) == task_names("c", worker=2)
    assert uid_of(running, "c-worker-0") == old
    kubelet.stop("c-worker-0")

    await_replacement(running, "c-worker-0", old)


def test_all_pods_are_replaced_together(running, kubelet):
    before = {name: uid_of(running, name) for name in task_names("c", worker=2)}
    for name in before:
        running.delete(PODS, name)
    kubelet.stop(*before)

    for name, old in before.items():
        await_replacement(running, name, old)


def test_replacing_drained_pods_through_the_eviction_api(running, kubelet):
    old = uid_of(running, "c-worker-1")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "c-worker-1", "namespace": running.namespace},
    }
    running.objects.request("POST", PODS.path(running.namespace, "c-worker-1", "eviction"), eviction)
    kubelet.stop("c-worker-1")

    await_replacement(running, "c-worker-1", old)


def test_replacing_says_so_while_it_waits(running, kubelet):
    for _ in range(2):  # the second delay is long enough to be observed
        old = uid_of(running, "c-worker-1")
        kubelet.fail("c-worker-1")
        await_replacement(running, "c-worker-1", old)
    kubelet.fail("c-worker-1")

    running.await_condition("c", "Ready", status="False", reason="BackingOff")
