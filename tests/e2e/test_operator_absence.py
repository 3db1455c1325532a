"""Running clusters do not need the operator: it may die, and come back, and be away, and nothing in a pod changes."""

from __future__ import annotations

import pytest
from live_world import LiveWorld, without_status
from support.objects import CONFIG_MAPS, PODS, SERVICES, TFCLUSTERS, Object
from support.world import task_names

pytestmark = [pytest.mark.exhaustive, pytest.mark.alone]

JOBS = {"chief": {}, "worker": {"replicas": 2, "maxReplicas": 4, "deviceFilters": ["/job:chief"]}}


@pytest.fixture
def running(world: LiveWorld) -> LiveWorld:
    """A running cluster of a chief and two workers."""
    world.launch_listeners("c", JOBS)
    world.await_ready("c")
    return world


def everything(world: LiveWorld) -> dict[str, Object]:
    """Read all that the operator may write, whole: equal before and after means that nobody wrote."""
    kinds = (TFCLUSTERS, SERVICES, CONFIG_MAPS)
    listed = {kind.plural: world.objects.list(kind, world.namespace) for kind in kinds}
    listed[PODS.plural] = [without_status(pod) for pod in world.pods().values()]
    return {f"{plural}/{found['metadata']['name']}": found for plural, all_ in listed.items() for found in all_}


def test_killed_operator_writes_nothing_when_it_returns(running, operator_release):
    """When the operator is killed and its successor has looked at every cluster, no object has been written."""
    before = everything(running)

    operator_release.kill()
    # The successor makes a new cluster only after it has listed, and queued, those that were there.
    running.launch_listeners("later", {"worker": {"replicas": 0}})
    running.await_ready("later")

    after = everything(running)
    assert {name: after.get(name) for name in before} == before
    assert all("/later" in name for name in after.keys() - before.keys())


def test_tasks_run_on_without_the_operator(running, operator_release):
    """While there is no operator, the tasks of a running cluster reach each other by name."""
    tasks = task_names("c", chief=1, worker=2)

    with operator_release.absent():
        answers = {caller: running.call(caller, map(running.address, tasks)) for caller in tasks}

    assert answers == {caller: {running.address(pod): pod for pod in tasks} for caller in tasks}


def test_returning_operator_does_what_was_missed(running, operator_release):
    """What happened while the operator was away, it does at once: an edit, a lost pod, a deleted cluster."""
    running.launch_listeners("doomed", {"worker": {}})
    running.await_ready("doomed")
    uids = running.uids()

    with operator_release.absent():
        generation = running.scale("c", replicas=3)
        running.delete(PODS, "c-worker-0")
        running.remove("doomed")

    running.await_replaced("c-worker-0", uids["c-worker-0"])
    assert len(running.await_epoch("c-chief-0", generation)["jobs"]["worker"]) == 3
    running.await_pods(task_names("c", chief=1, worker=3))
    assert (running.uids()["c-chief-0"], running.uids()["c-worker-1"]) == (uids["c-chief-0"], uids["c-worker-1"])
