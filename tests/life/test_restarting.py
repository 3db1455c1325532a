"""Failed tasks: their count, the number of restarts, the back-off, and the tasks that restart together."""

import pytest
from support.lives import (
    await_all_replaced,
    await_another_pass,
    await_asked_to_go,
    launch_running,
    note_failures_in_a_row,
    remembered,
    uids_of,
)
from support.objects import PODS
from support.rbac import OPERATOR_USER
from support.waiting import eventually
from support.world import World, task_names

POLICIES = ("OnFailure", "Always", "ExitCode", "Never")


def await_restarts(world: World, cluster: str, count: int) -> dict:
    return world.await_status(cluster, lambda s: s.get("restarts") == count, what=f"{count} restarts are counted")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("limit", [0, 2])
def test_restart_limit_stops_at_exactly_n(world, kubelet, audit, limit):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 4}}, backoffLimit=limit)
    position = audit.position()
    for index in range(limit):
        kubelet.fail(f"c-worker-{index}")
        world.await_replaced(f"c-worker-{index}", uids[f"c-worker-{index}"])
        kubelet.run(f"c-worker-{index}")

    kubelet.fail(f"c-worker-{limit}", exit_code=3)
    status = world.await_ended("c", "Failed", "BackoffLimitExceeded")

    assert (status["restarts"], status["jobs"]["worker"]["restarts"]) == (limit, limit)
    message = world.condition("c", "Failed")["message"]
    assert f"worker-{limit} failed after {limit} of {limit} restarts: exit code 3" in message
    await_another_pass(world, "c")
    made = [w.name for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace) if is_new_pod(w)]
    assert sorted(made) == task_names("c", worker=limit)


def is_new_pod(write) -> bool:
    return (write.verb, write.target, write.code) == ("create", "pods", 201)


@pytest.mark.usefixtures("operator")
def test_restart_waits_and_says_until_when(world, kubelet):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 2}})
    world.await_condition("c", "Ready", status="True")
    note_failures_in_a_row(world, "c", 1, index=1)
    kubelet.fail("c-worker-1", exit_code=7, message="no such file: /data/train.tfrecord")

    told = world.await_condition("c", "Ready", status="False", reason="BackingOff")["message"]

    assert "worker-1 failed: exit code 7: no such file: /data/train.tfrecord; next try in 2 s, at " in told
    world.await_replaced("c-worker-1", uids["c-worker-1"])
    assert remembered(world, "c", "worker")["failing"]["1"]["in_row"] == 2
    assert uids_of(world, "c")["c-worker-0"] == uids["c-worker-0"]


@pytest.mark.usefixtures("operator")
def test_disruption_is_never_a_failure(world, kubelet):
    """Evicted, preempted and deleted pods are replaced under every policy, and do not count against a limit, even 0."""
    old = {
        policy: launch_running(
            world, kubelet, policy.lower(), {"worker": {"replicas": 4, "restartPolicy": policy}}, backoffLimit=0
        )
        for policy in POLICIES
    }
    for name in map(str.lower, POLICIES):
        kubelet.evict(f"{name}-worker-0")
        kubelet.disrupt(f"{name}-worker-1")
        world.delete(PODS, f"{name}-worker-2")
        kubelet.fail(f"{name}-worker-2", exit_code=143)  # the result of SIGTERM in its program
        kubelet.stop(f"{name}-worker-2")

    for policy in POLICIES:
        name = policy.lower()
        for index in (0, 1, 2):
            world.await_replaced(f"{name}-worker-{index}", old[policy][f"{name}-worker-{index}"])
        status = world.await_status(name, lambda s: s["jobs"]["worker"]["disruptions"] == 3, what=f"{name}: 3 replaced")
        assert (status["restarts"], status["jobs"]["worker"]["restarts"]) == (0, 0)
        assert world.condition(name, "Failed")["reason"] == "NotFinished"
        assert world.uid(f"{name}-worker-3") == old[policy][f"{name}-worker-3"]


@pytest.mark.usefixtures("operator")
def test_restart_of_a_scope_keeps_its_back_off(world, kubelet):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 2, "restartScope": "Job"}})
    world.await_condition("c", "Ready", status="True")
    note_failures_in_a_row(world, "c", 2)

    kubelet.fail("c-worker-0", message="lost a peer")
    await_asked_to_go(world, "c-worker-1")
    kubelet.stop("c-worker-1")

    told = world.await_condition("c", "Ready", status="False", reason="BackingOff")["message"]
    assert "job worker is restarted after worker-0 failed: exit code 1: lost a peer; next try in" in told
    assert world.pods_of("c") == {}
    await_all_replaced(world, kubelet, "c", uids)
    assert await_restarts(world, "c", 1)["internal"]["jobs"]["worker"]["in_row"] == 3


def test_completed_task_stays_complete_without_its_pod(world, kubelet, operator):
    uids = launch_running(world, kubelet, "c", {"chief": {}, "worker": {"replicas": 3}})
    kubelet.succeed("c-worker-0", "c-worker-1")
    world.await_status("c", lambda s: s["jobs"]["worker"]["succeeded"] == 2, what="two are complete")

    world.delete(PODS, "c-worker-0")
    await_another_pass(world, "c")
    operator.stop()
    world.delete(PODS, "c-worker-1")
    operator.start()
    await_another_pass(world, "c")

    assert uids_of(world, "c") == {n: u for n, u in uids.items() if n in {"c-chief-0", "c-worker-2"}}
    status = world.await_condition("c", "Ready", status="True")
    assert "2 finished" in status["message"]
    assert world.status("c")["jobs"]["worker"]["disruptions"] == 0


@pytest.mark.usefixtures("operator")
def test_restart_waits_for_the_kubelets_last_word(world, kubelet):
    """A failure counts when the container has ended; the pod is deleted when its phase is Failed too."""
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 2}})
    kubelet.end_container("c-worker-0", exit_code=3)  # a kubelet reports the phase a second or more later
    await_restarts(world, "c", 1)
    await_another_pass(world, "c")
    assert world.demand(PODS, "c-worker-0")["metadata"].get("deletionTimestamp") is None

    kubelet.fail("c-worker-0", exit_code=3)
    world.await_replaced("c-worker-0", uids["c-worker-0"])

    world.await_event("c", "PodFailed")
    status = world.status("c")
    assert (status["restarts"], status["jobs"]["worker"]["disruptions"]) == (1, 0)
    assert status["internal"]["jobs"]["worker"]["failing"]["0"]["in_row"] == 1


@pytest.mark.usefixtures("operator")
def test_back_off_survives_deletion_of_the_failed_pod(world, kubelet):
    """Deleting a failed pod neither shortens its task's back-off nor turns the failure into a disruption."""
    launch_running(world, kubelet, "c", {"worker": {"replicas": 2}})
    world.await_condition("c", "Ready", status="True")
    note_failures_in_a_row(world, "c", 2, index=0)
    kubelet.fail("c-worker-0", message="out of disk")
    await_restarts(world, "c", 1)
    world.delete(PODS, "c-worker-0")
    eventually(lambda: world.get(PODS, "c-worker-0"), lambda pod: pod is None, what="the pod is gone")

    told = world.await_condition("c", "Ready", status="False", reason="BackingOff")["message"]
    assert "worker-0" in told
    assert "out of disk" in told
    world.await_pods_of("c", task_names("c", worker=2))
    status = world.await_status("c", lambda s: s["jobs"]["worker"]["created"] == 2, what="it is made anew")
    assert (status["restarts"], status["jobs"]["worker"]["disruptions"]) == (1, 0)
    assert status["internal"]["jobs"]["worker"]["failing"]["0"]["in_row"] == 3
