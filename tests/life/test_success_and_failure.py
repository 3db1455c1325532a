"""The end of a cluster: which tasks decide it, that it is final, and which pods are left."""

import pytest
from support.lives import (
    await_all_replaced,
    await_another_pass,
    await_pods_left,
    launch_running,
    uids_of,
)
from support.manifests import pod_template
from support.objects import PODS
from support.rbac import OPERATOR_USER
from support.world import task_names

pytestmark = pytest.mark.usefixtures("operator")


def test_success_wins_over_failures_seen_together(world, kubelet, operator):
    launch_running(world, kubelet, "c", {"chief": {}, "worker": {"replicas": 3, "restartPolicy": "Never"}})
    world.await_settled("c")
    operator.kill()
    kubelet.fail(*task_names("c", worker=3))
    kubelet.succeed("c-chief-0")
    operator.start()

    world.await_ended("c", "Succeeded")
    assert world.condition("c", "Failed")["status"] == "False"


def test_success_counts_nothing_that_comes_after(world, kubelet, operator):
    """Later failures are ignored: counts, conditions and pods stay, under any restartPolicy."""
    launch_running(world, kubelet, "c", {"chief": {}, "worker": {"replicas": 2}}, cleanPodPolicy="None", backoffLimit=0)
    kubelet.succeed("c-chief-0")
    before = world.await_ended("c", "Succeeded")
    pods = uids_of(world, "c")

    kubelet.fail("c-worker-0", exit_code=137)
    operator.stop()
    kubelet.fail("c-worker-1")
    operator.start()
    await_another_pass(world, "c")

    after = world.status("c")
    assert uids_of(world, "c") == pods
    assert (after["restarts"], after["completionTime"]) == (0, before["completionTime"])
    assert {c["type"]: c["status"] for c in after["conditions"] if c["type"] in {"Succeeded", "Failed"}} == {
        "Succeeded": "True",
        "Failed": "False",
    }


def test_failure_is_final_though_others_succeed(world, kubelet):
    launch_running(
        world,
        kubelet,
        "c",
        {"chief": {}, "worker": {"replicas": 2, "restartPolicy": "Never"}},
        cleanPodPolicy="None",
    )
    kubelet.fail("c-worker-1")
    world.await_ended("c", "Failed", "TaskFailed")

    kubelet.succeed("c-chief-0")
    await_another_pass(world, "c")

    assert world.condition("c", "Failed")["status"] == "True"
    assert world.condition("c", "Succeeded") | {"lastTransitionTime": ""} == {
        "type": "Succeeded",
        "status": "False",
        "reason": "Finished",
        "message": "the cluster has already failed",
        "observedGeneration": 2,
        "lastTransitionTime": "",
    }


def test_edit_after_the_end_is_ignored_and_reported(world, kubelet, operator):
    uids = launch_running(world, kubelet, "c", {"chief": {}, "worker": {"replicas": 2, "maxReplicas": 5}})
    kubelet.fail("c-worker-1")
    world.await_replaced("c-worker-1", uids["c-worker-1"])
    kubelet.succeed("c-chief-0")
    before = world.await_ended("c", "Succeeded")
    await_pods_left(world, kubelet, "c", ["c-chief-0"])
    left = uids_of(world, "c")

    world.scale("c", replicas=4)
    world.edit("c", {"jobs": {"chief": {"template": pod_template(image="registry.test/train:2")}}})
    generation = world.edit("c", {"suspend": True})

    told = world.await_condition("c", "Suspended", status="False", reason="Finished")
    assert "is ignored" in told["message"]
    world.await_status("c", lambda s: s["observedGeneration"] == generation, what="the edits were seen")
    operator.kill()
    operator.start()
    await_another_pass(world, "c")
    assert uids_of(world, "c") == left
    assert "edits after generation 1 are ignored" in world.condition("c", "Ready")["message"]
    assert world.condition("c", "Succeeded")["observedGeneration"] == 1
    after, kept = world.status("c"), ("startTime", "completionTime", "restarts", "lastRestart")
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    assert (after["restarts"], after["jobs"]["chief"]["succeeded"]) == (1, 1)


def test_clean_pod_policy_keeps_a_pod_whose_phase_is_late(world, kubelet):
    """A chief whose container has just succeeded keeps its pod and its log, although its phase is still Running."""
    launch_running(world, kubelet, "c", {"chief": {}, "worker": {}})
    kubelet.end_container("c-chief-0", exit_code=0)
    world.await_ended("c", "Succeeded")
    await_pods_left(world, kubelet, "c", ["c-chief-0"])
    await_another_pass(world, "c")

    assert world.demand(PODS, "c-chief-0")["metadata"].get("deletionTimestamp") is None


def test_end_has_one_event(world, kubelet):
    launch_running(world, kubelet, "good", {"worker": {}})
    launch_running(world, kubelet, "bad", {"worker": {"restartPolicy": "Never"}})
    kubelet.succeed("good-worker-0")
    kubelet.fail("bad-worker-0")

    assert world.await_event("good", "TasksSucceeded")["type"] == "Normal"
    assert world.await_event("bad", "TaskFailed")["type"] == "Warning"
    assert [e["reason"] for e in world.events("good")].count("TasksSucceeded") == 1


def test_evaluator_looks_on(world, kubelet):
    """An evaluator sees the cluster, is in no ClusterSpec, and affects neither Ready nor success."""
    world.launch("c", {"chief": {}, "worker": {"replicas": 2}, "evaluator": {}})
    world.await_pods_of("c", task_names("c", chief=1, evaluator=1, worker=2))
    kubelet.run(*task_names("c", chief=1, worker=2))

    world.await_condition("c", "Ready", status="True")
    assert (world.status("c")["readyTasks"], world.status("c")["tasks"]) == (3, 3)
    assert sorted(world.view("c", "worker")["jobs"]) == ["chief", "worker"]
    assert sorted(world.view("c", "evaluator")["jobs"]) == ["chief", "worker"]
    kubelet.fail("c-evaluator-0")
    await_all_replaced(world, kubelet, "c", {"c-evaluator-0": world.uid("c-evaluator-0") or ""})
    assert world.condition("c", "Ready")["status"] == "True"
    kubelet.succeed("c-chief-0")
    world.await_ended("c", "Succeeded")


def test_managed_by_this_operator_is_reconciled(world):
    world.launch("c", {"worker": {}}, managedBy="tfcluster.dev/tfcluster-operator")
    world.await_settled("c")


@pytest.mark.server
def test_managed_by_another_is_left_alone(world, audit):
    position = audit.position()
    jobs = {"worker": {"replicas": 2}}
    world.launch("c", jobs, managedBy="kueue.x-k8s.io/multikueue", suspend=True, ttlSecondsAfterFinished=0)
    world.edit("c", {"suspend": False})
    assert (world.pods_of("c"), world.status("c")) == ({}, {"observedGeneration": 0})
    world.remove("c")
    world.launch("c", jobs)  # another cluster of the same name: the operator handles it after all earlier events
    world.await_settled("c")

    requests = audit.since(position, namespace=world.namespace)
    ours = max(i for i, r in enumerate(requests) if (r.verb, r.target) == ("create", "tfclusters"))
    assert [str(r) for r in requests[:ours] if r.user == OPERATOR_USER and r.is_write] == []
    assert [r.name for r in requests[ours:] if (r.verb, r.target) == ("create", "pods")] != []
