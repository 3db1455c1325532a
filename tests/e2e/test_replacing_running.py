"""Pods that end for any cause: the task returns at the same address, and the other tasks are not affected."""

import json
from collections.abc import Iterator

import pytest
from live_world import LiveWorld, restarts
from support.objects import EVENTS, NODES, PODS, Object
from support.waiting import eventually
from task_programs import CRASH_ONCE, OVERFILL_ON_DEMAND, pod_template, with_scratch

OTHERS = ("c-chief-0", "c-worker-0")
EVICTION_DEADLINE_SECONDS = 150.0


@pytest.fixture
def schedulable(running: LiveWorld) -> Iterator[LiveWorld]:
    """Uncordons every node after a test."""
    yield running
    for node in running.objects.list(NODES):
        if node["spec"].get("unschedulable"):
            running.objects.patch(NODES, "", node["metadata"]["name"], {"spec": {"unschedulable": None}})


def attempt(pod: Object) -> str:
    return pod["metadata"]["annotations"]["tfcluster.dev/attempt"]


def test_deleted_pod_comes_back_at_its_address(running):
    uids, declared = running.uids(), running.declared("c-worker-0")
    view = json.loads(running.read("c-chief-0"))
    assert "incarnations" not in view

    running.delete(PODS, "c-worker-1")
    running.await_replaced("c-worker-1", uids["c-worker-1"])

    running.await_answer("c-chief-0", "c-worker-1")
    (host,) = running.hosts(["c-worker-1"])
    eventually(
        lambda: (running.resolve("c-chief-0", [host])[host], [running.ip("c-worker-1")]),
        lambda found: found[0] == found[1],
        what="the name gives the new pod's IP only",
    )
    running.await_ready("c")
    told = eventually(
        lambda: json.loads(running.read("c-chief-0")), lambda told: told != view, what="the chief reads of the new pod"
    )
    assert list(told.pop("incarnations")["worker"]) == ["1"]
    assert told == view
    assert running.declared("c-worker-0") == declared
    assert {name: running.uids()[name] for name in OTHERS} == {name: uids[name] for name in OTHERS}


@pytest.mark.alone
def test_drained_pod_waits_for_a_node_and_comes_back(schedulable, kubectl):
    uids = schedulable.uids()
    node = schedulable.demand(PODS, "c-worker-1")["spec"]["nodeName"]
    cordoned = [n["metadata"]["name"] for n in schedulable.objects.list(NODES) if n["metadata"]["name"] != node]
    for other in cordoned:
        schedulable.objects.patch(NODES, "", other, {"spec": {"unschedulable": True}})
    selector = "tfcluster.dev/cluster=c,tfcluster.dev/job=worker,tfcluster.dev/task-index=1"

    drained = kubectl("drain", node, f"--pod-selector={selector}", "--timeout=120s")
    assert drained.returncode == 0, drained.stderr
    schedulable.await_status(
        "c",
        lambda s: any("worker-1: Unschedulable" in c["message"] for c in s["conditions"] if c["type"] == "Ready"),
        what="the status says that worker-1 cannot be scheduled",
    )
    for name in (node, *cordoned):
        assert kubectl("uncordon", name).returncode == 0
    replaced = schedulable.await_replaced("c-worker-1", uids["c-worker-1"])

    assert attempt(replaced) == "0"
    schedulable.await_answer("c-chief-0", "c-worker-1")
    assert {name: uid for name, uid in schedulable.uids().items() if uid != uids[name]}.keys() == {"c-worker-1"}


def test_container_that_the_kubelet_restarts_keeps_its_pod(world):
    template = with_scratch(pod_template(world.image, CRASH_ONCE, restartPolicy="OnFailure"))
    world.launch("c", {"worker": {"template": template}})
    first = world.await_pods(["c-worker-0"])["c-worker-0"]["metadata"]["uid"]

    world.await_ready("c")

    pod = world.demand(PODS, "c-worker-0")
    assert (pod["metadata"]["uid"], restarts(pod), attempt(pod)) == (first, 1, "0")


def test_evicted_pods_are_replaced_and_count_no_failure(world):
    """If the program exits with 0 at SIGTERM, the kubelet reports only Succeeded: restartPolicy Always replaces it."""
    limits = {"limits": {"ephemeral-storage": "1Mi"}}
    template = pod_template(world.image, OVERFILL_ON_DEMAND, resources=limits)
    stubborn = pod_template(world.image, OVERFILL_ON_DEMAND.replace("os._exit(0)", "os._exit(143)"), resources=limits)
    obedient = {"template": template, "restartPolicy": "Always"}
    world.launch("c", {"chief": {"template": template}, "worker": obedient, "ps": {"template": stubborn}})
    world.await_ready("c")
    uids, start = world.uids(), world.pods_version()

    for pod in ("c-worker-0", "c-ps-0"):
        world.run(pod, "touch", "/tmp/overfill")  # noqa: S108 - a path in the pod
    world.pod_history(start, gone=["c-worker-0", "c-ps-0"], within=EVICTION_DEADLINE_SECONDS)
    for pod in ("c-worker-0", "c-ps-0"):
        world.await_replaced(pod, uids[pod])
    status = world.await_status(
        "c",
        lambda s: (s["jobs"]["worker"]["disruptions"], s["jobs"]["ps"]["disruptions"]) == (1, 1),
        what="both are counted",
    )
    evicted = {
        e["involvedObject"]["name"] for e in world.objects.list(EVENTS, world.namespace) if e["reason"] == "Evicted"
    }

    assert evicted == {"c-worker-0", "c-ps-0"}
    assert status["restarts"] == 0
    assert world.uids()["c-chief-0"] == uids["c-chief-0"]
