"""Views: who stands in which file, how it is spelled, and when its epoch moves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from unit.in_memory import InMemoryWorld, make_cluster, settled, views_for

from tfcluster_operator.model import naming, views
from tfcluster_operator.model.digests import digest
from tfcluster_operator.model.observed import Observed
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.view_files import read_file
from tfcluster_resolver import contract

GPU = "nvidia.com/gpu"
NIC = "rdma/hca"


def gpu_template(**limits: Any) -> dict[str, Any]:
    """Make a template of two containers; the limits are the first one's, the second asks for one GPU."""
    first = {
        "name": "task",
        "image": "i",
        "resources": {"limits": {key.replace("_", "/"): n for key, n in limits.items()}},
    }
    return {"spec": {"containers": [first, {"name": "side", "image": "i", "resources": {"limits": {GPU: "1"}}}]}}


def view(
    cluster: TFCluster, job: str, file: str = contract.VIEW_FILE, world: InMemoryWorld | None = None
) -> contract.View:
    """Give one file of a job's views, read back."""
    observed = world.observe(cluster) if world else Observed()
    (wanted,) = [one for one in views_for(cluster, observed) if one.job.name == job]
    return contract.load(wanted.files[file].text)


def epochs(cluster: TFCluster, world: InMemoryWorld) -> dict[str, int]:
    """Give the wanted epoch of every file, by "job/file"."""
    return {
        f"{of.job.name}/{name}": file.epoch
        for of in views_for(cluster, world.observe(cluster))
        for name, file in of.files.items()
    }


def address(job: str, index: int) -> str:
    """Give the address of a task of the cluster "demo"."""
    return f"demo-{job}-{index}.demo.default.svc:2222"


# --- who stands in a view


def test_without_filters_a_task_sees_all():
    """A view without filters is dense: every job is a list of all its addresses."""
    cluster = make_cluster({"chief": 1, "worker": 2})

    assert {
        "chief": (address("chief", 0),),
        "worker": (address("worker", 0), address("worker", 1)),
    } == view(cluster, "chief").jobs


def test_some_tasks_of_a_job_are_an_index_map():
    """Where filters let through a part of a job, the job is a map from index to address."""
    cluster = make_cluster({"ps": 3, "worker": {"replicas": 2, "deviceFilters": ["/job:ps/task:0", "/job:ps/task:2"]}})

    assert {"ps": {0: address("ps", 0), 2: address("ps", 2)}} == view(cluster, "worker").jobs


def test_all_tasks_of_a_job_by_name_are_dense_again():
    """Filters that name every task one by one give the same view as one that names the job."""
    named = make_cluster({"ps": 2, "worker": {"deviceFilters": ["/job:ps/task:0", "/job:ps/task:1"]}})
    whole = make_cluster({"ps": 2, "worker": {"deviceFilters": ["/job:ps"]}})

    assert view(whole, "worker").jobs == view(named, "worker").jobs


def test_a_task_that_its_own_filters_hide_is_not_in_the_file():
    """Views are shared, so the file has no entry for the reader itself: its address comes by environment."""
    cluster = make_cluster({"ps": 1, "worker": {"replicas": 3, "deviceFilters": ["/job:ps"]}})

    assert {"ps"} == set(view(cluster, "worker").jobs)


def test_a_filter_below_max_replicas_names_a_task_that_may_come():
    """A task that does not exist yet is not in the view, and joins it when it is declared."""
    ps = {"replicas": 1, "maxReplicas": 3}
    worker = {"deviceFilters": ["/job:ps/task:2"]}

    assert view(make_cluster({"ps": ps, "worker": worker}), "worker").jobs == {}
    assert {"ps": {2: address("ps", 2)}} == view(
        make_cluster({"ps": {**ps, "replicas": 3}, "worker": worker}), "worker"
    ).jobs


def test_a_task_with_filters_of_its_own_has_its_own_file():
    """TaskDeviceFilters give one file each; the other tasks read the job's."""
    cluster = make_cluster({"ps": 2, "worker": {"replicas": 3, "taskDeviceFilters": {"1": ["/job:ps/task:1"]}}})
    (wanted,) = [one for one in views_for(cluster) if one.job.name == "worker"]

    assert {"cluster.json", "task-1.json"} == set(wanted.files)
    assert {"ps": {1: address("ps", 1)}} == view(cluster, "worker", "task-1.json").jobs
    assert wanted.files["task-1.json"].digest == wanted.told_for(1)
    assert {wanted.files["cluster.json"].digest} == {wanted.told_for(0), wanted.told_for(2)}


def test_empty_filters_of_a_task_free_it_from_the_jobs():
    """An empty list replaces the job's filters, and no filters show everything."""
    worker = {"replicas": 2, "deviceFilters": ["/job:ps"], "taskDeviceFilters": {"0": []}}
    cluster = make_cluster({"ps": 1, "worker": worker})

    assert {"ps", "worker"} == set(view(cluster, "worker", "task-0.json").jobs)


def test_the_evaluator_is_in_nobodys_view_and_has_one():
    """TensorFlow's evaluator sees the cluster and is not in it, not even in its filters."""
    cluster = make_cluster({"chief": 1, "evaluator": {"deviceFilters": ["/job:chief"]}})

    assert {"chief"} == set(view(cluster, "chief").jobs) == set(view(cluster, "evaluator").jobs)
    assert view(cluster, "chief").device_filters == {}


def test_a_job_of_no_tasks_is_in_no_view():
    """TensorFlow knows no empty job."""
    assert {"chief"} == set(view(make_cluster({"chief": 1, "worker": 0}), "chief").jobs)


def test_ports_and_the_cluster_domain_are_in_the_addresses():
    """A job's own port comes before the cluster's, and the domain ends the name."""
    cluster = make_cluster(
        {"chief": 1, "data_loader": {"replicas": 1, "port": 3000}}, port=8000, clusterDomain="cluster.local"
    )

    assert view(cluster, "chief").jobs == {
        "chief": ("demo-chief-0.demo.default.svc.cluster.local:8000",),
        "data_loader": ("demo-data-loader-0.demo.default.svc.cluster.local:3000",),
    }


def test_a_view_says_whose_it_is():
    """Name, namespace, UID, rpc layer and epoch are the TFCluster's."""
    found = view(make_cluster(rpcLayer="grpc+verbs", generation=7), "chief")

    assert (
        found.name,
        found.namespace,
        found.uid,
        found.rpc_layer,
        found.epoch,
    ) == ("demo", "default", "uid-of-the-cluster", "grpc+verbs", 7)


# --- filters in a view


def test_filters_are_spelled_up_to_max_replicas():
    """TensorFlow keeps the first filters that it is given for a task, so a task that may come is declared now."""
    cluster = make_cluster({"chief": 1, "worker": {"replicas": 2, "maxReplicas": 5, "deviceFilters": ["/job:chief"]}})

    assert {"worker": (contract.FilterRange(0, 5, ("/job:chief",)),)} == view(cluster, "chief").device_filters


def test_ranges_break_where_a_task_has_its_own_filters():
    """Equal neighbours are one range; a task of its own splits it, and a task without filters is in none."""
    worker = {
        "replicas": 3,
        "maxReplicas": 6,
        "deviceFilters": ["/job:chief"],
        "taskDeviceFilters": {"2": ["/job:worker"], "4": []},
    }
    cluster = make_cluster({"chief": 1, "worker": worker})

    assert (
        contract.FilterRange(0, 2, ("/job:chief",)),
        contract.FilterRange(2, 3, ("/job:worker",)),
        contract.FilterRange(3, 4, ("/job:chief",)),
        contract.FilterRange(5, 6, ("/job:chief",)),
    ) == view(cluster, "chief").device_filters["worker"]


def test_filters_of_hidden_tasks_are_not_spelled():
    """A view tells the filters of the tasks that it shows, now or later, and of no other."""
    worker = {"replicas": 2, "maxReplicas": 4, "deviceFilters": ["/job:worker/task:3"]}
    cluster = make_cluster({"ps": {"deviceFilters": ["/job:worker"]}, "worker": worker})

    assert {"worker": (contract.FilterRange(3, 4, ("/job:worker/task:3",)),)} == view(cluster, "worker").device_filters


# --- accelerators in a view


def test_limits_are_summed_over_the_containers():
    """A pod asks for the sum of its containers' extended resources; memory and CPU are none of them."""
    template = gpu_template(**{"nvidia.com_gpu": "2", "cpu": "4", "memory": "1Gi", "rdma_hca": 1})
    template["spec"]["containers"][0]["resources"]["limits"]["example.kubernetes.io/thing"] = "3"
    cluster = make_cluster({"worker": {"template": template}})

    assert {"worker": contract.JobAccelerators(limits={GPU: 3, NIC: 1})} == view(cluster, "worker").accelerators


def test_only_differing_devices_are_told():
    """A task that holds what it asked for is not mentioned; one with a sick device is, by its healthy ones."""
    cluster = make_cluster({"worker": {"replicas": 3, "template": gpu_template(**{"nvidia.com_gpu": "1"})}})
    world = settled(cluster)
    world.pod_holds("demo-worker-0", GPU, "Healthy", "Healthy")
    world.pod_holds("demo-worker-1", GPU, "Healthy", "Unhealthy")

    held = view(cluster, "worker", world=world).accelerators["worker"]

    assert contract.JobAccelerators(limits={GPU: 2}, tasks={1: {GPU: 1}}) == held


def test_devices_of_tasks_that_a_view_hides_are_not_told():
    """Another's lost device rewrites no view that does not show it; the reader's own job always tells."""
    worker = {"replicas": 1, "template": gpu_template(**{"nvidia.com_gpu": "1"}), "deviceFilters": ["/job:ps"]}
    cluster = make_cluster({"ps": {"deviceFilters": ["/job:ps"]}, "worker": worker})
    world = settled(cluster)
    world.pod_holds("demo-worker-0", GPU, "Unhealthy", "Unhealthy")

    assert view(cluster, "ps", world=world).accelerators == {}
    assert view(cluster, "worker", world=world).accelerators["worker"].tasks == {0: {GPU: 0}}


def test_of_a_job_that_is_seen_in_part_only_that_part_is_told():
    """A reader that sees worker 0 alone learns nothing of worker 1's devices."""
    worker = {"replicas": 2, "template": gpu_template(**{"nvidia.com_gpu": "1"})}
    cluster = make_cluster({"ps": {"deviceFilters": ["/job:worker/task:0"]}, "worker": worker})
    world = settled(cluster)
    for name in ("demo-worker-0", "demo-worker-1"):
        world.pod_holds(name, GPU, "Unhealthy", "Unhealthy")

    assert view(cluster, "ps", world=world).accelerators["worker"].tasks == {0: {GPU: 0}}


@pytest.mark.parametrize("change", [{"ownerReferences": None}, {"deletionTimestamp": "2027-01-01T00:00:00Z"}])
def test_devices_of_pods_that_are_not_ours_or_go_do_not_count(change):
    """A foreign or terminating pod of the name says nothing about the task's devices."""
    cluster = make_cluster({"worker": {"template": gpu_template(**{"nvidia.com_gpu": "1"})}})
    world = settled(cluster)
    world.pod_holds("demo-worker-0", GPU, "Unhealthy", "Unhealthy")
    world.edit("Pod", "demo-worker-0", {"metadata": change})

    assert view(cluster, "worker", world=world).accelerators["worker"].tasks == {}


# --- epochs


def test_a_view_that_does_not_change_keeps_its_epoch():
    """An edit of the template at generation 5 leaves every epoch where it was."""
    world = settled(make_cluster())
    template = {"spec": {"containers": [{"name": "task", "image": "image:9"}]}}
    after = make_cluster({"chief": {"template": template}, "worker": 2}, generation=5)

    assert epochs(after, world) == {"chief/cluster.json": 1, "worker/cluster.json": 1}


def test_only_the_views_that_change_get_the_generation():
    """A new worker that the workers do not see moves the epoch of the ps' view alone."""
    worker = {"deviceFilters": ["/job:ps"]}
    world = settled(make_cluster({"ps": 1, "worker": {"replicas": 1, **worker}}))
    after = make_cluster({"ps": 1, "worker": {"replicas": 2, **worker}}, generation=4)

    assert epochs(after, world) == {"ps/cluster.json": 4, "worker/cluster.json": 1}
    assert views.epoch_of(views_for(after, world.observe(after))) == 4


@pytest.mark.parametrize(
    "edit",
    [
        {"worker": {"replicas": 2, "deviceFilters": ["/job:worker"]}},
        {"worker": {"replicas": 2, "port": 3000}},
        {"worker": {"replicas": 2, "maxReplicas": 3, "deviceFilters": ["/job:worker"]}},
    ],
    ids=["filters", "addresses", "filters of tasks that may come"],
)
def test_filters_and_addresses_count_for_the_epoch(edit):
    """Whatever a program would have to connect again for gives a new epoch."""
    world = settled(make_cluster({"worker": 2}))

    assert epochs(make_cluster(edit, generation=3), world) == {"worker/cluster.json": 3}


def test_accelerators_do_not_count_for_the_epoch():
    """A sick device rewrites the view and keeps its epoch: nobody has to connect again."""
    cluster = make_cluster({"worker": {"template": gpu_template(**{"nvidia.com_gpu": "1"})}}, generation=2)
    world = settled(cluster)
    before = view(cluster, "worker", world=world)
    world.pod_holds("demo-worker-0", GPU, "Unhealthy", "Unhealthy")
    later = make_cluster({"worker": {"template": gpu_template(**{"nvidia.com_gpu": "1"})}}, generation=6)

    after = view(later, "worker", world=world)

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
    ],
    ids=["another text", "no file", "another file", "an annotation of the past", "no annotation"],
)
def test_an_edit_behind_our_back_cannot_fake_an_epoch(change):
    """Where text and annotation disagree nothing is believed, and the view counts as changed now."""
    cluster = make_cluster({"worker": 1}, generation=3)
    world = settled(cluster)
    world.edit("ConfigMap", "demo-worker", change)

    assert epochs(make_cluster({"worker": 1}, generation=8), world) == {"worker/cluster.json": 8}


def test_an_epoch_that_was_edited_in_the_text_alone_is_not_believed():
    """The epoch in the file must be the annotation's."""
    cluster = make_cluster({"worker": 1}, generation=3)
    world = settled(cluster)
    text = world.objects["ConfigMap", "demo-worker"]["data"]["cluster.json"]
    world.edit("ConfigMap", "demo-worker", {"data": {"cluster.json": text.replace('"epoch":3', '"epoch":2')}})

    assert epochs(cluster, world) == {"worker/cluster.json": 3}


def test_an_epoch_of_the_future_is_not_believed():
    """Even an epoch that was edited everywhere never exceeds the TFCluster's generation."""
    cluster = make_cluster({"worker": 1}, generation=3)
    world = settled(cluster)
    text = world.objects["ConfigMap", "demo-worker"]["data"]["cluster.json"]
    change = {
        "data": {"cluster.json": text.replace('"epoch":3', '"epoch":99')},
        "metadata": {"annotations": {naming.ANNOTATION_EPOCHS: '{"cluster.json":99}'}},
    }
    world.edit("ConfigMap", "demo-worker", change)

    assert epochs(cluster, world) == {"worker/cluster.json": 3}


def test_the_epochs_of_another_owners_config_map_are_not_ours():
    """What an earlier TFCluster of the name published does not count for this one."""
    cluster = make_cluster({"worker": 1}, generation=1)
    world = settled(cluster)
    world.edit("ConfigMap", "demo-worker", {"metadata": {"ownerReferences": None}})

    assert epochs(make_cluster({"worker": 1}, generation=8), world) == {"worker/cluster.json": 8}


def test_a_text_that_is_no_view_has_no_membership():
    """Garbage in a file has a digest and nothing else."""
    found = read_file("garbage")

    assert (digest("garbage"), "", 0) == (found.digest, found.membership, found.epoch)


def test_the_annotation_lists_the_epoch_of_each_file():
    """The epochs are JSON with sorted keys, so that equal epochs are equal text."""
    cluster = make_cluster({"worker": {"replicas": 2, "taskDeviceFilters": {"1": ["/job:worker"]}}}, generation=3)
    world = settled(cluster)

    spelled = world.annotation("ConfigMap", "demo-worker", naming.ANNOTATION_EPOCHS)

    assert spelled == '{"cluster.json":3,"task-1.json":3}'
    assert list(json.loads(spelled)) == ["cluster.json", "task-1.json"]


def test_no_views_have_epoch_nothing():
    """Without any view the epoch is 0."""
    assert views.epoch_of(()) == 0
