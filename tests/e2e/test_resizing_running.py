"""Resizing a running cluster: which tasks are notified, in the pod's own file, and which are not."""

from __future__ import annotations

import pytest
from live_world import LiveWorld
from support.world import task_names

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
