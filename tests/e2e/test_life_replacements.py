"""Replacing on purpose and by accident on a real node: evictions, restarts of a whole scope, rolling updates."""

from __future__ import annotations

import json

import pytest
from live_world import LiveWorld, is_pod_ready
from support.objects import EVENTS, PODS, Object
from support.waiting import eventually
from support.world import task_names
from task_programs import END_ON_DEMAND, LISTEN, pod_template

pytestmark = pytest.mark.exhaustive

WORKERS = task_names("c", worker=3)


def evict(world: LiveWorld, kubectl, pod: str) -> None:
    """Ask for an eviction as ``kubectl drain`` does."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": world.namespace},
    }
    path = f"/api/v1/namespaces/{world.namespace}/pods/{pod}/eviction"
    asked = kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    assert asked.returncode == 0, asked.stderr


@pytest.mark.parametrize("policy", ["Never", "Always"])
def test_evicted_task_is_replaced_and_fails_nothing(world, kubectl, policy):
    """An eviction by the API replaces the task at its address under every policy, and counts no failure."""
    worker = {"replicas": 2, "restartPolicy": policy}
    world.launch_listeners("c", {"worker": worker}, backoffLimit=0)
    world.await_ready("c")
    uids = world.uids()

    evict(world, kubectl, "c-worker-1")
    world.await_replaced("c-worker-1", uids["c-worker-1"])

    world.await_answer("c-worker-0", "c-worker-1")
    world.await_ready("c")
    status = world.await_status("c", lambda s: s["jobs"]["worker"]["replaced"] == 1, what="the replacement is counted")
    assert (status["restarts"], world.condition("c", "Failed")["status"]) == (0, "False")
    assert world.uids()["c-worker-0"] == uids["c-worker-0"]


def test_two_failures_of_a_scope_are_one_restart(world):
    """Two workers that fail together bring back all pods of the cluster together, for one restart."""
    worker = {"replicas": 2, "restartScope": "Cluster", "template": pod_template(world.image, END_ON_DEMAND)}
    world.launch("c", {"worker": worker, "ps": {"template": pod_template(world.image, LISTEN)}})
    world.await_ready("c")
    uids, epoch = world.uids(), world.status("c")["epoch"]

    for pod in ("c-worker-0", "c-worker-1"):
        world.end(pod, 7)
    for pod in uids:
        world.await_replaced(pod, uids[pod])
    world.await_ready("c")

    status = world.status("c")
    assert (status["restarts"], status["epoch"]) == (1, epoch)
    assert (status["lastRestart"]["reason"], status["lastRestart"]["exitCode"]) == ("Error", 7)


def workers(template: Object) -> Object:
    return {"jobs": {"worker": {"template": template}}}


def test_rolling_update_goes_one_by_one_and_stops_at_a_broken_one(world, kubectl):
    """An image that no node has stops at the first worker; the cure then goes from the highest index, one by one."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    world.launch_listeners("c", {"worker": {"replicas": 3}}, updateStrategy=strategy)
    world.await_ready("c")
    uids = world.uids()

    world.edit("c", workers(pod_template("localhost/nowhere:1", imagePullPolicy="Never")))
    stalled = world.await_condition("c", "UpToDate", status="False", reason="RolloutStalled")
    assert "containers[task].image" in stalled["message"]
    assert "ErrImageNeverPull" in stalled["message"]
    assert {pod for pod in uids if world.uids().get(pod) == uids[pod]} == {"c-worker-0", "c-worker-1"}

    since = world.pods_version()
    world.edit("c", workers(pod_template(world.image, env=[{"name": "EDITED", "value": "yes"}])))
    waited = kubectl("-n", world.namespace, "wait", "tfc/c", "--for=condition=UpToDate", "--timeout=120s")
    assert waited.returncode == 0, waited.stderr
    world.await_ready("c")

    history = world.pod_history(since, gone=WORKERS)
    assert order_of_deletion(history) == ["c-worker-2", "c-worker-1", "c-worker-0"]
    assert most_unready(history, ready={"c-worker-0", "c-worker-1"}) == 1
    assert [world.run(pod, "printenv", "EDITED").strip() for pod in WORKERS] == ["yes"] * 3
    assert world.status("c")["restarts"] == 0
    assert names_changed_fields(world)


def order_of_deletion(history: list[Object]) -> list[str]:
    """Name the pods in the order in which their deletion was asked for, as a replay of their states shows it."""
    return list(dict.fromkeys(p["metadata"]["name"] for p in history if "deletionTimestamp" in p["metadata"]))


def most_unready(history: list[Object], *, ready: set[str]) -> int:
    """Count the workers that were not at work at the worst moment of a replay that began with these at work."""
    worst = 0
    for pod in history:
        at_work = is_pod_ready(pod) and "deletionTimestamp" not in pod["metadata"]
        (ready.add if at_work else ready.discard)(pod["metadata"]["name"])
        worst = max(worst, len(WORKERS) - len(ready))
    return worst


def names_changed_fields(world: LiveWorld) -> bool:
    """Wait until an event tells of a template's change and names a field."""
    return bool(
        eventually(
            lambda: [e["message"] for e in world.objects.list(EVENTS, world.namespace) if is_of_the_rollout(e)],
            lambda said: any("containers[task]." in message for message in said),
            what="an event names the changed field",
        )
    )


def is_of_the_rollout(event: Object) -> bool:
    return event["reason"] == "TemplateChanged" and event["involvedObject"]["kind"] == "TFCluster"


def test_completed_task_is_not_run_again_when_its_pod_goes(world):
    """A worker that has ended well stays complete when somebody deletes its pod."""
    template = pod_template(world.image, END_ON_DEMAND)
    world.launch("c", {"worker": {"replicas": 2, "template": template}})
    world.await_ready("c")

    world.end("c-worker-1", 0)
    world.await_status("c", lambda s: s["jobs"]["worker"]["succeeded"] == 1, what="worker-1 is complete")
    world.delete(PODS, "c-worker-1")
    eventually(lambda: world.get(PODS, "c-worker-1"), lambda pod: pod is None, what="the pod is gone")
    world.end("c-worker-0", 0)

    world.await_condition("c", "Succeeded", status="True")
    assert sorted(world.pods()) == ["c-worker-0"]
