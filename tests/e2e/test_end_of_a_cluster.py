"""The end of a cluster: all its objects are deleted, and a new one with its name can follow immediately."""

from __future__ import annotations

import pytest
from live_world import LiveWorld
from support.waiting import eventually
from support.world import task_names

pytestmark = pytest.mark.exhaustive

JOBS = {"chief": {}, "worker": {"replicas": 2}}
TASKS = task_names("c", chief=1, worker=2)


@pytest.fixture
def running(world: LiveWorld) -> LiveWorld:
    """A running cluster of a chief and two workers."""
    world.launch_listeners("c", JOBS)
    world.await_ready("c")
    return world


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_deleted_cluster_takes_everything_with_it(running, kubectl, cascade):
    """``kubectl delete`` also deletes Service, ConfigMaps and pods, for each kind of cascade."""
    deleted = kubectl("-n", running.namespace, "delete", "tfcluster", "c", f"--cascade={cascade}")
    assert deleted.returncode == 0, deleted.stderr

    eventually(
        lambda: [*running.pods(), *running.config_maps(), *running.services()],
        lambda left: not left,
        what="nothing of the cluster is left",
    )


def test_orphaned_pods_run_on(running, kubectl):
    """After ``kubectl delete --cascade=orphan`` the pods keep running, and are neither deleted nor restarted."""
    uids = running.uids()

    deleted = kubectl("-n", running.namespace, "delete", "tfcluster", "c", "--cascade=orphan")
    assert deleted.returncode == 0, deleted.stderr
    # The operator creates this one after the event of the other's end.
    running.launch_listeners("later", {"worker": {"replicas": 0}})
    running.await_ready("later")

    assert running.uids() == uids
    assert running.call("c-chief-0", map(running.address, TASKS)) == {running.address(pod): pod for pod in TASKS}


def test_cluster_can_be_recreated_during_termination(running):
    """A cluster that is re-created while the old one's pods terminate gets its own pods."""
    old = running.uids()

    running.remove("c")
    running.launch_listeners("c", JOBS)
    running.await_ready("c")

    assert sorted(running.uids()) == sorted(TASKS)
    assert not set(running.uids().values()) & set(old.values())
    for pod in TASKS:
        running.await_answer("c-chief-0", pod)
