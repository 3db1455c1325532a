"""The pod of each task: what the chief's view says, and how rarely it is written."""

from __future__ import annotations

import pytest
from in_memory import InMemoryWorld, make_cluster, settled

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.naming import digest
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


def short(world, pod):
    return digest(world.objects["Pod", f"demo-{pod}"]["metadata"]["uid"])[:6]


def launched(jobs=None, **spec):
    """Build a running cluster whose chief's view names all pods."""
    cluster = make_cluster(jobs or JOBS, **spec)
    world = settled(cluster)
    world.settle(cluster)
    return world, cluster


def of_pods(world, **indices):
    return {job: {index: short(world, f"{job}-{index}") for index in of_job} for job, of_job in indices.items()}


AMENDED = [("Patch", "demo-chief", reasons.VIEW_REFRESHED), ("Patch", "demo-chief-0", reasons.VIEW_REFRESHED)]


def test_a_chief_that_starts_last_finds_the_pods_in_its_first_view():
    cluster = make_cluster({"chief": {"startAfter": ["worker"]}, "worker": 2})
    world = InMemoryWorld()
    passed(world, cluster)
    world.all_pods_run()
    done = passed(world, cluster)
    assert done == [("Patch", "demo-chief", reasons.VIEW_REFRESHED), ("Create", "demo-chief-0", reasons.CREATED)]
    assert told(world) == of_pods(world, worker=[0, 1])
    assert passed(world, cluster) == []


def test_chief_gets_only_the_pods_that_it_sees():
    chief = {"replicas": 2, "deviceFilters": ["/job:ps"], "taskDeviceFilters": {"1": ["/job:worker/task:1"]}}
    world, _ = launched({"chief": chief, "ps": 1, "worker": 2})
    files = world.objects["ConfigMap", "demo-chief"]["data"]
    assert told(world) == {"ps": {0: short(world, "ps-0")}}
    assert contract.load(files["task-1.json"]).incarnations == {"worker": {1: short(world, "worker-1")}}


def test_crashed_operator_continues_from_the_published_view():
    world, cluster = launched()
    before = told(world)
    world.delete("Pod", "demo-worker-1", force=True)
    world.restart_operator()
    passed(world, cluster)
    world.restart_operator()
    assert passed(world, cluster) == AMENDED
    world.restart_operator()
    assert passed(world, cluster) == []
    assert told(world)["worker"][0] == before["worker"][0]


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


@pytest.mark.parametrize("edit", [{"worker": {"0": "fakefa"}}, {"worker": {"7": "abcdef"}}, {}])
def test_edited_pods_in_the_view_are_restored(edit):
    world, cluster = launched()
    before = told(world)
    text = world.objects["ConfigMap", "demo-chief"]["data"]["cluster.json"]
    forged = contract.json.dumps({**contract.json.loads(text), "incarnations": edit})
    world.edit("ConfigMap", "demo-chief", {"data": {"cluster.json": forged}})
    world.settle(cluster)
    assert told(world) == before


def test_newer_operator_publishes_running_pods():
    world, cluster = launched()
    text = world.objects["ConfigMap", "demo-chief"]["data"]["cluster.json"]
    old = {key: value for key, value in contract.json.loads(text).items() if key != "incarnations"}
    spelled = contract.dump(contract.load(contract.json.dumps(old)))
    world.edit("ConfigMap", "demo-chief", {"data": {"cluster.json": spelled}})
    world.edit("Pod", "demo-chief-0", {"metadata": {"annotations": {"tfcluster.dev/view": digest(spelled)}}})
    world.restart_operator()
    assert passed(world, cluster) == AMENDED
    assert passed(world, cluster) == []
