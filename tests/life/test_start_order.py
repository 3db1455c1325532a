"""startAfter: jobs wait for other jobs, until these are ready, and only once."""

from __future__ import annotations

import pytest
from support.lives import await_another_pass, await_pods_left
from support.objects import PODS
from support.world import task_names

pytestmark = pytest.mark.usefixtures("operator")

AFTER_PS = {"worker": {"replicas": 2, "startAfter": ["ps"]}, "ps": {"replicas": 2}}


def test_start_waits_until_every_task_is_ready(world, kubelet):
    """Workers are created when all ps are ready and not before; until then, Ready has the number of ready ones."""
    world.launch("c", AFTER_PS)
    world.await_pods_of("c", task_names("c", ps=2))
    told = world.await_condition("c", "Ready", status="False", reason="WaitingForJob")
    assert "job worker starts after ps (0 of 2 ready)" in told["message"]
    kubelet.run("c-ps-1")
    world.await_status("c", lambda s: s["jobs"]["ps"]["ready"] == 1, what="one ps is ready")
    assert "ps (1 of 2 ready)" in world.condition("c", "Ready")["message"]
    assert sorted(world.pods_of("c")) == task_names("c", ps=2)

    kubelet.run("c-ps-0")

    world.await_pods_of("c", task_names("c", ps=2, worker=2))


def test_start_is_not_taken_back(world, kubelet, operator):
    """A ps that restarts later does not stop workers, and a lost worker is re-created immediately."""
    world.launch("c", AFTER_PS)
    world.await_pods_of("c", task_names("c", ps=2))
    kubelet.run(*task_names("c", ps=2))
    workers = world.await_pods_of("c", task_names("c", ps=2, worker=2))
    kubelet.run(*task_names("c", worker=2))
    world.await_condition("c", "Ready", status="True")

    kubelet.fail("c-ps-0")
    world.await_replaced("c-ps-0", workers["c-ps-0"]["metadata"]["uid"])
    world.delete(PODS, "c-worker-1")
    kubelet.stop("c-worker-1")
    world.await_replaced("c-worker-1", workers["c-worker-1"]["metadata"]["uid"])
    operator.stop()
    world.delete(PODS, "c-worker-1")
    operator.start()

    world.await_pods_of("c", task_names("c", ps=2, worker=2))
    assert world.uid("c-worker-0") == workers["c-worker-0"]["metadata"]["uid"]


def test_start_in_a_chain(world, kubelet):
    """Evaluator after chief after worker after ps: each when the previous one is ready; 0 tasks block none."""
    jobs = {
        "ps": {},
        "worker": {"replicas": 0, "maxReplicas": 2, "startAfter": ["ps"]},
        "chief": {"startAfter": ["worker", "ps"]},
        "evaluator": {"startAfter": ["chief"]},
    }
    world.launch("c", jobs)
    started: list[str] = []
    for name in ("c-ps-0", "c-chief-0", "c-evaluator-0"):
        started.append(name)
        world.await_pods_of("c", started)
        await_another_pass(world, "c")
        assert sorted(world.pods_of("c")) == sorted(started)
        kubelet.run(name)

    world.await_condition("c", "Ready", status="True")


def test_start_accepts_a_completed_task(world, kubelet):
    """A task with exit code 0 counts as ready: jobs after a preparation job start when it is complete."""
    world.launch("c", {"prepare": {"replicas": 2}, "worker": {"startAfter": ["prepare"]}})
    world.await_pods_of("c", task_names("c", prepare=2))
    kubelet.succeed("c-prepare-0")
    kubelet.run("c-prepare-1")

    world.await_pods_of("c", task_names("c", prepare=2, worker=1))


def test_start_is_awaited_again_after_a_resume(world, kubelet):
    world.launch("c", AFTER_PS)
    world.await_pods_of("c", task_names("c", ps=2))
    kubelet.run(*task_names("c", ps=2))
    world.await_pods_of("c", task_names("c", ps=2, worker=2))
    world.edit("c", {"suspend": True})
    await_pods_left(world, kubelet, "c", [])
    world.edit("c", {"suspend": False})

    world.await_pods_of("c", task_names("c", ps=2))
    world.await_condition("c", "Ready", status="False", reason="WaitingForJob")
    kubelet.run(*task_names("c", ps=2))
    world.await_pods_of("c", task_names("c", ps=2, worker=2))


def test_start_of_added_tasks_is_not_held_back(world, kubelet):
    """Added workers start immediately although a ps is not ready: their job has started."""
    jobs = {**AFTER_PS, "worker": {**AFTER_PS["worker"], "maxReplicas": 4}}
    world.launch("c", jobs)
    world.await_pods_of("c", task_names("c", ps=2))
    kubelet.run(*task_names("c", ps=2))
    world.await_pods_of("c", task_names("c", ps=2, worker=2))
    kubelet.unready("c-ps-0")

    world.scale("c", replicas=4)

    world.await_pods_of("c", task_names("c", ps=2, worker=4))
