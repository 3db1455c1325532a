"""Resizing a running cluster: who is told of it, in the pod's own file, and who is left alone."""

from __future__ import annotations

import time

import pytest
from live_world import VIEW, LiveWorld
from support.objects import PODS, Object
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


def file_identity(world: LiveWorld, pod: str) -> str:
    """Tell a pod's view file apart from any later one: the kubelet swaps a link when it writes anew."""
    return world.run(pod, "readlink", "-f", VIEW)


def view_told(pod: Object) -> str:
    """Give the digest of the view that a pod was last told of."""
    return pod["metadata"]["annotations"]["tfcluster.dev/view"]


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


def test_scale_up_leaves_running_pods_in_place(running):
    """Scaling up restarts nobody: chief and ps are only told, and the workers' pods and files are not even touched."""
    uids, declared = running.uids(), running.declared(*WORKERS)
    files = {pod: file_identity(running, pod) for pod in WORKERS}

    generation = running.scale("c", replicas=3)
    for pod in TOLD:
        running.await_epoch(pod, generation)
    running.await_ready("c")

    assert {name: uid for name, uid in running.uids().items() if name in uids} == uids
    assert running.declared(*WORKERS) == declared
    assert {pod: file_identity(running, pod) for pod in WORKERS} == files
    assert {running.view("c", "worker")["epoch"], running.await_epoch("c-worker-0", 1)["epoch"]} == {1}


def test_scale_down_removes_the_highest_indices(running):
    """Scaling down ends the workers of the highest indices, and the survivors read a view without them."""
    uids = running.uids()
    generation = running.scale("c", replicas=1)

    for pod in TOLD:
        assert running.await_epoch(pod, generation)["jobs"]["worker"] == [running.address("c-worker-0")]
    after = running.await_pods(["c-chief-0", "c-ps-0", "c-worker-0"])

    assert {name: pod["metadata"]["uid"] for name, pod in after.items()} == {name: uids[name] for name in after}
    assert running.await_ready("c")["status"]["ready"] == "3/3"


def test_scale_down_tells_survivors_before_pods_go(running):
    """Every survivor whose view changes is told of it before the first pod is asked to go."""
    running.scale("c", replicas=4)
    running.await_ready("c")
    start = running.pods_version()

    running.scale("c", replicas=1)
    running.await_pods(["c-chief-0", "c-ps-0", "c-worker-0"])
    told_last = {pod: view_told(running.demand(PODS, pod)) for pod in TOLD}
    asked: dict[str, int] = {}
    told: dict[str, int] = {}
    for pod in running.pod_history(start, gone=task_names("c", worker=4)[1:]):
        name, version = pod["metadata"]["name"], int(pod["metadata"]["resourceVersion"])
        if "deletionTimestamp" in pod["metadata"]:
            asked.setdefault(name, version)
        if view_told(pod) == told_last.get(name):
            told.setdefault(name, version)

    assert (sorted(asked), sorted(told)) == (task_names("c", worker=4)[1:], sorted(TOLD))
    assert max(told.values()) < min(asked.values())


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
    jobs = {"chief": {}, "worker": {"replicas": 3, "drainSeconds": 3600}}
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
