"""Leaving tasks in the views: listed until their pods end, and rarely written."""

import pytest
from decisions.in_memory import make_cluster, settled

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.plan.actions import Delete
from tfcluster_resolver import contract


def declared(workers, generation, **worker):
    """Declare a chief, a ps with a drain, and this number of workers, by default with an hour to drain."""
    ps, worker = {"replicas": 2, "drainTimeoutSeconds": 5}, {"replicas": workers, "drainTimeoutSeconds": 3600, **worker}
    return make_cluster({"chief": 1, "ps": ps, "worker": worker}, generation=generation)


def passed(world, cluster):
    actions = world.plan(cluster).actions
    world.apply_all(actions, cluster)
    return actions


def view(world, job="chief", file=contract.VIEW_FILE):
    return contract.load(world.objects["ConfigMap", f"demo-{job}"]["data"][file])


def leaving(world):
    """Return the leaving tasks in each job's view; all views must agree."""
    said = [view(world, job).leaving for job in ("chief", "ps", "worker")]
    assert said[0] == said[1] == said[2]
    return said[0]


def scaled_down(workers=5, to=2):
    world = settled(declared(workers, 1))
    world.settle(declared(workers, 1))
    passed(world, declared(to, 2))
    return world


def test_a_job_without_drain_leaves_nothing_to_say():
    world = settled(declared(5, 1, drainTimeoutSeconds=0))
    passed(world, declared(2, 2, drainTimeoutSeconds=0))
    assert leaving(world) == {}
    assert "leaving" not in world.objects["ConfigMap", "demo-worker"]["data"]["cluster.json"]


def test_task_is_leaving_until_its_pod_is_deleted():
    cluster, world = declared(2, 2), scaled_down(workers=3)
    world.now += 3600
    (delete,) = passed(world, cluster)
    assert (delete.reason, delete.name) == (reasons.SCALED_DOWN, "demo-worker-2")
    assert world.plan(cluster).actions == ()
    assert leaving(world) == {"worker": ((2, 3),)}
    world.end_graceful_deletions()
    actions = passed(world, cluster)
    written = [(action.kind, action.name, action.reason) for action in actions]
    assert written == [("ConfigMap", f"demo-{job}", reasons.VIEW_REFRESHED) for job in ("chief", "ps", "worker")]
    assert leaving(world) == {}
    assert view(world).epoch == 2
    assert world.plan(cluster).actions == ()


def test_views_are_not_written_for_each_of_many_that_go():
    cluster, world = declared(2, 2), scaled_down(workers=9)
    for index in (3, 5, 2, 7, 4, 6):
        world.pod_ends(f"demo-worker-{index}", "Succeeded")
        assert [(type(one), one.name) for one in passed(world, cluster)] == [(Delete, f"demo-worker-{index}")]
    world.pod_ends("demo-worker-8", "Failed")
    actions = passed(world, cluster)
    assert [one.name for one in actions if isinstance(one, Delete)] == ["demo-worker-8"]
    assert leaving(world) == {}


def test_only_ours_leave():
    world = scaled_down(workers=3)
    world.edit("Pod", "demo-worker-2", {"metadata": {"ownerReferences": None}})
    without = make_cluster({"chief": 1, "worker": {"replicas": 2, "drainTimeoutSeconds": 3600}}, generation=3)
    passed(world, without)
    assert view(world).leaving == {}


@pytest.mark.parametrize(
    ("name", "index"),
    [("demo-worker-12", 12), ("demo-worker-3-r7", 3), ("demo", 0), ("demo-worker-" + "9" * 30, 0), ("demo-²", 0)],
)
def test_the_index_of_a_pod_is_in_its_name(name, index):
    assert naming.index_of(name) == index
