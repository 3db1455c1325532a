"""A cluster whose views exceed a ConfigMap is rejected with a message, and the largest sensible cluster is not."""

from dataclasses import replace

import pytest
from decisions.in_memory import InMemoryWorld, creates, make_cluster, settled, views_for
from decisions.observed_pods import pod

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.life import views
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.objects.kinds import Observed
from tfcluster_resolver import contract

#: The limits of the CRD.
MOST_TASKS, MOST_TASK_FILTERS = 10_000, 512


def test_view_too_large_for_a_config_map_is_rejected_with_its_size(monkeypatch):
    cluster = make_cluster({"chief": 1, "worker": {"replicas": 2, "deviceFilters": ["/job:chief"]}})
    size = views_for(cluster)[0].size
    monkeypatch.setattr(views, "LARGEST_CONFIG_MAP", size)
    assert InMemoryWorld().plan(cluster).findings == ()
    monkeypatch.setattr(views, "LARGEST_CONFIG_MAP", size - 1)
    planned = InMemoryWorld().plan(cluster)
    assert {action.name for action in planned.actions if creates(action, "Pod")} == {"demo-worker-0", "demo-worker-1"}
    assert [action.name for action in planned.actions if creates(action, "ConfigMap")] == ["demo-worker"]
    assert [finding.reason for finding in planned.findings] == [reasons.VIEW_TOO_LARGE]
    assert f"the views of job chief take {size} bytes, more than the {size - 1}" in planned.findings[0].message


# --- the pods that replaced others, in the chief's view
def test_pods_of_the_largest_cluster_have_room():
    seen = {"deviceFilters": ["/job:ps", "/job:chief"]}
    cluster = make_cluster({"chief": 1, "ps": 100, "worker": {"replicas": MOST_TASKS - 101, **seen}})
    names = (naming.pod_name(cluster.name, task.job.name, task.index) for task in cluster.tasks())
    again = {naming.ANNOTATION_REPLACEMENT: "true"}
    pods = {name: pod(name, uid=f"uid-{name}", annotations=again) for name in names}
    wanted, *_ = views.views_of(call_roll(cluster, Observed(pods=pods))).of_jobs
    named = contract.load(wanted.files["cluster.json"].text).incarnations
    assert (len(named["ps"]), len(named["worker"])) == (100, MOST_TASKS - 101)
    assert not wanted.too_large
    without, *_ = views.views_of(roster_of(cluster)).of_jobs
    assert 0 < wanted.size - without.size < 20 * MOST_TASKS


def test_view_without_room_for_the_pods_omits_them(monkeypatch):
    cluster = make_cluster({"chief": 1, "ps": 1, "worker": 2, "evaluator": 1})
    world = settled(cluster)
    del world.objects["Pod", "demo-worker-1"]
    world.settle(cluster)
    assert contract.load(world.objects["ConfigMap", "demo-chief"]["data"]["cluster.json"]).incarnations
    size = len(world.objects["ConfigMap", "demo-chief"]["data"]["cluster.json"])
    monkeypatch.setattr(views, "LARGEST_CONFIG_MAP", size - 1)
    planned = world.plan(cluster)
    world.apply_all(planned.actions, cluster)
    assert planned.findings == ()
    assert contract.load(world.objects["ConfigMap", "demo-chief"]["data"]["cluster.json"]).incarnations == {}
    assert world.plan(cluster).actions == ()


# --- the cost
@pytest.fixture
def built(monkeypatch):
    """The epoch of each view whose text is built, in order; a view for a comparison has epoch 0."""
    texts = []
    dump = contract.dump

    def noted(view):
        texts.append(view.epoch)
        return dump(view)

    monkeypatch.setattr(contract, "dump", noted)
    return texts


def roster_of(cluster):
    return call_roll(cluster, Observed())


def test_size_is_known_before_anything_is_built(built):
    own = {str(index): ["/job:worker", f"/job:ps/task:{index}"] for index in range(MOST_TASK_FILTERS)}
    ps = 1000
    worker = {"replicas": MOST_TASKS - ps, "deviceFilters": ["/job:ps/task:0"], "taskDeviceFilters": own}
    cluster = make_cluster({"ps": {"replicas": ps, "deviceFilters": ["/job:ps/task:0"]}, "worker": worker})
    roster = roster_of(cluster)
    wanted = {of.job.name: of for of in views.views_of(roster).of_jobs}
    assert (wanted["worker"].too_large, wanted["worker"].files) == (True, {})
    assert wanted["worker"].size > 100 * views.LARGEST_CONFIG_MAP
    assert not wanted["ps"].too_large
    assert len(built) == 2  # the ps' own view, for the comparison and for its file


def test_equal_views_are_built_once(built):
    own = {str(index): ["/job:ps", "/job:worker"] for index in range(30)}
    seen = {"deviceFilters": ["/job:ps", "/job:worker"]}
    cluster = make_cluster(
        {"ps": {"replicas": 2, **seen}, "worker": {"replicas": 30, "taskDeviceFilters": own, **seen}}
    )
    (_, worker) = views.views_of(roster_of(cluster)).of_jobs
    assert len(worker.files) == 31
    assert len({file.says.digest for file in worker.files.values()}) == 1
    assert sorted(built) == [0, 1]  # one for the comparison and one for the files


def test_views_are_cached_while_their_inputs_are_unchanged(built):
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    template = {"spec": {"containers": [{"name": "task", "image": "i", **limits}]}}
    jobs = {"worker": {"replicas": 2, "template": template}}
    cluster = make_cluster(jobs)
    world = InMemoryWorld()
    world.settle(cluster)
    world.all_pods_run()
    known = views.views_of(world.roster(cluster))
    built.clear()

    assert views.views_of(world.roster(cluster), known) is known
    world.pod_holds("demo-worker-0", "nvidia.com/gpu", "Healthy", "Healthy")
    assert views.views_of(world.roster(cluster), known) is known
    assert built == []

    world.pod_holds("demo-worker-0", "nvidia.com/gpu", "Healthy", "Unhealthy")
    sick = views.views_of(world.roster(cluster), known)
    assert sick.of_jobs != known.of_jobs
    assert views.views_of(world.roster(make_cluster(jobs, generation=2)), sick) is not sick
    world.edit("ConfigMap", "demo-worker", {"data": {"cluster.json": "x"}})
    assert views.views_of(world.roster(cluster), sick) is not sick


def test_views_of_another_cluster_of_the_same_name_are_not_believed():
    cluster = make_cluster({"worker": 1})
    known = views.views_of(roster_of(cluster))
    reborn = views.views_of(roster_of(replace(cluster, uid="uid-reborn")), known)
    assert reborn is not known
    assert contract.load(reborn.of_jobs[0].files["cluster.json"].text).uid == "uid-reborn"


@pytest.mark.parametrize("filters", [None, ["/job:worker"], ["/job:worker/task:3"], ["/job:ps"]])
def test_least_size_is_never_more_than_the_size(filters):
    """A view that is rejected before it is built would also be too large afterwards."""
    seen = {} if filters is None else {"deviceFilters": filters}
    cluster = make_cluster({"ps": 3, "worker": {"replicas": 12, **seen}})
    for wanted in views_for(cluster):
        least = views._least_size(cluster, wanted.job.filters)
        assert 0 < least <= wanted.size
