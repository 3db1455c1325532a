"""Leaving tasks, and the pod of each task, on a real API server: the content, time and cost of view updates."""

import hashlib

import pytest
from support.lives import launch_running
from support.objects import PODS
from support.rbac import OPERATOR_USER
from support.waiting import eventually
from support.world import World

pytestmark = pytest.mark.usefixtures("operator")

JOBS = {"chief": {}, "worker": {"replicas": 3, "drainTimeoutSeconds": 600}}


def known_pods(world: World) -> dict:
    return world.view("c", "chief").get("incarnations", {})


def short(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:6]


def test_replaced_pod_updates_only_the_chief_view(world, kubelet, audit):
    uids = launch_running(world, kubelet, "c", JOBS)
    world.await_settled("c")
    assert known_pods(world) == {}
    epoch = world.view("c", "chief")["epoch"]
    position = audit.position()

    world.delete(PODS, "c-worker-1")
    kubelet.stop("c-worker-1")
    uid = world.await_replaced("c-worker-1", uids["c-worker-1"])["metadata"]["uid"]

    eventually(
        lambda: known_pods(world), lambda known: known == {"worker": {"1": short(uid)}}, what="the chief knows it"
    )
    kubelet.run("c-worker-1")
    world.await_settled("c")
    patches = [
        (w.target, w.name)
        for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
        if w.verb == "patch" and w.resource != "tfclusters"
    ]
    assert sorted(patches) == [("configmaps", "c-chief"), ("pods", "c-chief-0")]
    assert world.view("c", "chief")["epoch"] == epoch
