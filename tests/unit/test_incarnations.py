"""The pod of each task: what the chief's view says, and how rarely it is written."""

from __future__ import annotations

from in_memory import make_cluster, settled

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.parse import MOST_TASKS
from tfcluster_operator.life import views
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.objects.base import Meta
from tfcluster_operator.objects.observed import Observed
from tfcluster_operator.objects.pod import Pod
from tfcluster_resolver import contract

JOBS = {"chief": 1, "ps": 1, "worker": 2, "evaluator": 1}


def passed(world, cluster):
    """Plan once and execute; return each action with its object and reason."""
    actions = world.plan(cluster).actions
    world.apply_all(actions, cluster)
    return [(type(one).__name__, one.name, one.reason) for one in actions]


def told(world, job="chief"):
    return contract.load(world.objects["ConfigMap", f"demo-{job}"]["data"]["cluster.json"]).incarnations


def launched(jobs=None, **spec):
    """Build a running cluster whose chief's view names all pods."""
    cluster = make_cluster(jobs or JOBS, **spec)
    world = settled(cluster)
    world.settle(cluster)
    return world, cluster


def pod_of(cluster, task):
    name = naming.pod_name(cluster.name, task.job.name, task.index)
    meta = Meta(name, cluster.namespace, f"uid-{name}", 1, cluster.uid, cluster.name, {}, {}, terminating=False)
    return Pod(meta, "Running", True, False, "", "node", None, "")


def test_the_largest_cluster_has_room():
    seen = {"deviceFilters": ["/job:ps", "/job:chief"]}
    cluster = make_cluster({"chief": 1, "ps": 100, "worker": {"replicas": MOST_TASKS - 101, **seen}})
    pods = {pod.meta.name: pod for pod in (pod_of(cluster, task) for task in cluster.tasks())}
    wanted, *_ = views.views_of(call_roll(cluster, Observed(pods=pods))).of_jobs
    named = contract.load(wanted.files["cluster.json"].text).incarnations
    assert (len(named["ps"]), len(named["worker"])) == (100, MOST_TASKS - 101)
    assert not wanted.too_large
    without, *_ = views.views_of(call_roll(cluster, Observed())).of_jobs
    assert 0 < wanted.size - without.size < 20 * MOST_TASKS


def test_view_without_room_for_the_pods_omits_them(monkeypatch):
    world, cluster = launched()
    size = len(world.objects["ConfigMap", "demo-chief"]["data"]["cluster.json"])
    monkeypatch.setattr(views, "LARGEST_CONFIG_MAP", size - 1)
    planned = world.plan(cluster)
    world.apply_all(planned.actions, cluster)
    assert (planned.findings, told(world)) == ((), {})
    assert passed(world, cluster) == []
