"""Resizing a running cluster: who is told of it, in the pod's own file, and who is left alone."""

from __future__ import annotations

import time

import pytest
from live_world import LiveWorld
from support.waiting import eventually
from support.world import task_names
from task_programs import LEAVE

JOBS = {
    "chief": {},
    "worker": {"replicas": 2, "maxReplicas": 4, "deviceFilters": ["/job:ps", "/job:chief"]},
    "ps": {"deviceFilters": ["/job:worker", "/job:chief"]},
}
TOLD = ("c-chief-0", "c-ps-0")
WORKERS = task_names("c", worker=2)


@pytest.fixture
def running(world: LiveWorld) -> LiveWorld:
    """A running parameter-server cluster of two workers."""
    world.launch_listeners("c", JOBS)
    world.await_ready("c")
    return world


def test_scale_up_reaches_running_pods(running, kubectl):
    """After ``kubectl scale`` chief and ps read the new worker, with the generation of the edit as its epoch."""
    scaled = kubectl("-n", running.namespace, "scale", "tfcluster/c", "--replicas=3")
    assert scaled.returncode == 0, scaled.stderr
    generation = running.cluster("c")["metadata"]["generation"]

    for pod in TOLD:
        view = running.await_epoch(pod, generation)
        assert view["jobs"]["worker"] == [running.address(f"c-worker-{i}") for i in range(3)]
    running.await_ready("c")

    assert running.call("c-chief-0", [running.address("c-worker-2")]) == {running.address("c-worker-2"): "c-worker-2"}


def test_changed_filters_reach_running_pods(running):
    """A change of device filters reaches the running workers as a changed file, and no pod is replaced."""
    uids = running.uids()

    generation = running.edit("c", {"jobs": {"worker": {"deviceFilters": ["/job:ps"]}}})

    for pod in WORKERS:
        assert list(running.await_epoch(pod, generation)["jobs"]) == ["ps"]
    running.await_condition("c", "MembershipPublished", status="True")
    assert running.uids() == uids


def test_suspended_cluster_has_no_pods_and_resumes_as_it_was(running):
    """Suspending ends all pods and keeps Service and views; resuming brings them back, at the same addresses."""
    before = running.uids()
    view = running.view("c", "chief")

    running.edit("c", {"suspend": True})
    running.await_condition("c", "Suspended", status="True")
    eventually(running.pods, lambda pods: not pods, what="all pods are gone")
    assert (list(running.services()), sorted(running.config_maps())) == (["c"], ["c-chief", "c-ps", "c-worker"])
    running.edit("c", {"suspend": False})
    running.await_ready("c")

    now = running.view("c", "chief")
    assert now["incarnations"].keys() == view["incarnations"].keys()
    assert {**now, "incarnations": {}} == {**view, "incarnations": {}}  # the pods are others
    assert not set(running.uids().values()) & set(before.values())
    for pod in before:
        running.await_answer("c-chief-0", pod)


def test_program_that_leaves_by_itself_is_not_waited_for(world, record_testsuite_property):
    """A task that is scaled away reads so in its own pod, and ends: its pod is gone in seconds, not in an hour."""
    jobs = {"chief": {}, "worker": {"replicas": 3, "drainTimeoutSeconds": 3600}}
    world.launch_listeners("c", jobs, program=LEAVE)
    world.await_ready("c")

    asked = time.monotonic()
    generation = world.scale("c", replicas=1)
    world.await_pods(task_names("c", chief=1, worker=1))

    record_testsuite_property(
        "seconds from a scale-down until the tasks that leave by themselves are gone", time.monotonic() - asked
    )
    view = world.await_epoch("c-chief-0", generation)
    assert view["jobs"]["worker"] == [world.address("c-worker-0")]
    status = world.await_ready("c")["status"]
    assert (status["restarts"], status["jobs"]["worker"]["failed"]) == (0, 0)
