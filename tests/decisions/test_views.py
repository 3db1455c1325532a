"""Views: the tasks in each file, their form, and when the epoch changes."""

from typing import Any

import pytest
from decisions.in_memory import LEAVING, OTHERS, InMemoryWorld, make_cluster, running, settled, views_for

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.life import views
from tfcluster_operator.objects.kinds import Observed
from tfcluster_resolver import contract

GPU = "nvidia.com/gpu"
NIC = "rdma/hca"


def gpu_template(**limits: Any) -> dict[str, Any]:
    """Build a template of two containers; the first has the limits, the second requests one GPU."""
    asked = ("task", {key.replace("_", "/"): count for key, count in limits.items()}), ("side", {GPU: "1"})
    return {"spec": {"containers": [{"name": n, "image": "i", "resources": {"limits": of}} for n, of in asked]}}


ONE_GPU = gpu_template(**{"nvidia.com_gpu": "1"})


def view(
    cluster: TFCluster, job: str, file: str = contract.VIEW_FILE, world: InMemoryWorld | None = None
) -> contract.View:
    observed = world.observe(cluster) if world else Observed()
    (wanted,) = [one for one in views_for(cluster, observed) if one.job.name == job]
    return contract.load(wanted.files[file].text)


def epochs(cluster: TFCluster, world: InMemoryWorld) -> dict[str, int]:
    """Return the wanted epoch of every file, by "job/file"."""
    return {
        f"{of.job.name}/{name}": file.says.epoch
        for of in views_for(cluster, world.observe(cluster))
        for name, file in of.files.items()
    }


def address(job: str, index: int, port: int = 2222) -> str:
    return f"demo-{job}-{index}.demo.default.svc:{port}"


def sparse(job: str, *indices: int) -> dict[str, dict[int, str]]:
    return {job: {index: address(job, index) for index in indices}}


# --- the tasks in a view
SEES_PS = {"replicas": 2, "deviceFilters": ["/job:ps"]}


def seeing(*filters: str) -> dict[str, Any]:
    return {"deviceFilters": list(filters)}


def test_ports_and_the_cluster_domain_are_in_the_addresses():
    jobs = {"chief": 1, "data_loader": {"replicas": 1, "port": 3000}}
    found = view(make_cluster(jobs, port=8000, clusterDomain="cluster.local"), "chief").jobs
    assert found == {
        "chief": ("demo-chief-0.demo.default.svc.cluster.local:8000",),
        "data_loader": ("demo-data-loader-0.demo.default.svc.cluster.local:3000",),
    }


def test_a_view_says_whose_it_is():
    found = view(make_cluster(rpcLayer="grpc+verbs", generation=7), "chief")
    values = (found.name, found.namespace, found.uid, found.rpc_layer, found.epoch)
    assert values == ("demo", "default", "uid-of-the-cluster", "grpc+verbs", 7)


# --- accelerators in a view
def test_limits_are_summed_over_the_containers():
    template = gpu_template(**{"nvidia.com_gpu": "2", "cpu": "4", "memory": "1Gi", "rdma_hca": 1})
    template["spec"]["containers"][0]["resources"]["limits"]["example.kubernetes.io/thing"] = "3"
    cluster = make_cluster({"worker": {"template": template}})
    assert {"worker": contract.JobAccelerators(limits={GPU: 3, NIC: 1})} == view(cluster, "worker").accelerators


SEEN_BY_NO_PS = {"ps": seeing("/job:ps"), "worker": {"template": ONE_GPU, "deviceFilters": ["/job:ps"]}}
SEEN_IN_PART = {"ps": seeing("/job:worker/task:0"), "worker": {"replicas": 2, "template": ONE_GPU}}
THREE = {"worker": {"replicas": 3, "template": ONE_GPU}}


@pytest.mark.parametrize(
    ("jobs", "healths", "reader", "told"),
    [
        (THREE, [("Healthy", "Healthy"), ("Healthy", "Unhealthy")], "worker", {1: {GPU: 1}}),
        # Another task's lost device changes only views that show it; the reader's own job is always shown.
        (SEEN_BY_NO_PS, [("Unhealthy", "Unhealthy")], "ps", None),
        (SEEN_BY_NO_PS, [("Unhealthy", "Unhealthy")], "worker", {0: {GPU: 0}}),
        (SEEN_IN_PART, [("Unhealthy", "Unhealthy")] * 2, "ps", {0: {GPU: 0}}),
    ],
)
def test_only_differing_devices_of_visible_tasks_are_published(jobs, healths, reader, told):
    cluster, world = running(jobs)
    for index, of_task in enumerate(healths):
        world.pod_holds(f"demo-worker-{index}", GPU, *of_task)
    wanted = {} if told is None else {"worker": contract.JobAccelerators(limits={GPU: 2}, tasks=told)}
    assert view(cluster, reader, world=world).accelerators == wanted


@pytest.mark.parametrize("change", [OTHERS["nobody's"], LEAVING])
def test_devices_of_pods_that_are_not_ours_or_go_do_not_count(change):
    cluster, world = running({"worker": {"template": ONE_GPU}})
    world.pod_holds("demo-worker-0", GPU, "Unhealthy", "Unhealthy")
    world.edit("Pod", "demo-worker-0", change)
    assert view(cluster, "worker", world=world).accelerators["worker"].tasks == {}


# --- epochs
OTHER_IMAGE = {"spec": {"containers": [{"name": "task", "image": "image:9"}]}}


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({"chief": 1, "worker": 2}, {"chief": {"template": OTHER_IMAGE}, "worker": 2}, {"chief": 1, "worker": 1}),
        # A new worker that the workers do not see changes only the epoch of the ps' view.
        ({"ps": 1, "worker": SEES_PS}, {"ps": 1, "worker": {**SEES_PS, "replicas": 3}}, {"ps": 4, "worker": 1}),
        ({"worker": 2}, {"worker": {"replicas": 2, **seeing("/job:worker")}}, {"worker": 4}),
        ({"worker": 2}, {"worker": {"replicas": 2, "port": 3000}}, {"worker": 4}),
        ({"worker": 2}, {"worker": {"replicas": 2, "maxReplicas": 3, **seeing("/job:worker")}}, {"worker": 4}),
    ],
    ids=["a template", "a task that is seen by some", "filters", "addresses", "filters of tasks that may come"],
)
def test_a_view_that_changes_gets_the_generation_as_its_epoch(before, after, wanted):
    world, edited = settled(make_cluster(before)), make_cluster(after, generation=4)
    assert epochs(edited, world) == {f"{job}/cluster.json": epoch for job, epoch in wanted.items()}
    assert views.epoch_of(views_for(edited, world.observe(edited))) == max(wanted.values())


def test_accelerators_do_not_count_for_the_epoch():
    """An unhealthy device rewrites the view and keeps its epoch, because no program has to connect again."""
    cluster, world = running({"worker": {"template": ONE_GPU}}, generation=2)
    before = view(cluster, "worker", world=world)
    world.pod_holds("demo-worker-0", GPU, "Unhealthy", "Unhealthy")
    after = view(make_cluster({"worker": {"template": ONE_GPU}}, generation=6), "worker", world=world)
    assert before.accelerators != after.accelerators
    assert 2 == before.epoch == after.epoch


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"cluster.json": '{"version":1}'}},
        {"data": {"cluster.json": None}},
        {"data": {"more.json": "x"}},
        {"metadata": {"annotations": {naming.ANNOTATION_EPOCHS: '{"cluster.json":1}'}}},
        {"metadata": {"annotations": {naming.ANNOTATION_EPOCHS: None}}},
        OTHERS["nobody's"],
    ],
    ids=["another text", "no file", "another file", "an annotation of the past", "no annotation", "another owner"],
)
def test_an_edit_behind_our_back_cannot_fake_an_epoch(change):
    world = settled(make_cluster({"worker": 1}, generation=3))
    world.edit("ConfigMap", "demo-worker", change)
    assert epochs(make_cluster({"worker": 1}, generation=8), world) == {"worker/cluster.json": 8}


@pytest.mark.parametrize(("forged", "annotated"), [(2, 3), (99, 99)], ids=["in the text alone", "of the future"])
def test_an_epoch_of_the_future_is_not_believed(forged, annotated):
    """Nor is one whose text and annotation disagree; none exceeds the TFCluster's generation."""
    cluster, world = running({"worker": 1}, generation=3)
    text = world.objects["ConfigMap", "demo-worker"]["data"]["cluster.json"]
    annotations = {naming.ANNOTATION_EPOCHS: f'{{"cluster.json":{annotated}}}'}
    data = {"cluster.json": text.replace('"epoch":3', f'"epoch":{forged}')}
    world.edit("ConfigMap", "demo-worker", {"data": data, "metadata": {"annotations": annotations}})
    assert epochs(cluster, world) == {"worker/cluster.json": 3}


# --- the pods that replaced others, in the chief's view
@pytest.mark.parametrize(
    ("lives", "listed"),
    [
        (({"worker": 2},), {}),
        (({"worker": 2}, {"worker": 3}), {}),
        (({"worker": 3}, {"worker": 2}, {"worker": 3}), {"worker": {2}}),
    ],
    ids=["created", "added", "removed and added"],
)
def test_chief_view_lists_pods_that_replaced_others(lives, listed):
    world = InMemoryWorld()
    for generation, jobs in enumerate(lives, start=1):
        world.settle(make_cluster({"chief": 1, **jobs}, generation=generation))
    view = contract.load(world.objects["ConfigMap", "demo-chief"]["data"]["cluster.json"])
    assert {job: set(tasks) for job, tasks in view.incarnations.items()} == listed
