"""The published views, as parsed JSON, for every kind of declaration."""

from __future__ import annotations

import pytest
from support.kubernetes_minor import require_kubernetes
from support.manifests import pod_template
from support.objects import Object
from support.world import World

GPU = pod_template(resources={"limits": {"nvidia.com/gpu": "2"}})


def publish(world: World, jobs: dict[str, Object], **spec: object) -> Object:
    """Declare cluster ``c`` and return it when its views are published."""
    world.launch("c", jobs, **spec)
    return world.await_settled("c")


def addresses(world: World, job: str, *indices: int, port: int = 2222) -> list[str]:
    return [f"c-{job}-{i}.c.{world.namespace}.svc:{port}" for i in indices]


def indexed(world: World, job: str, *indices: int) -> dict[str, str]:
    return dict(zip(map(str, indices), addresses(world, job, *indices), strict=True))


pytestmark = pytest.mark.usefixtures("operator")


def test_view_without_filters_is_whole_and_dense(world):
    """A task without filters sees every task, each job as a list; the document is complete."""
    uid = publish(world, {"chief": {}, "worker": {"replicas": 2}, "ps": {"replicas": 2}})["metadata"]["uid"]

    assert world.view("c", "worker") == {
        "version": 1,
        "cluster": {"name": "c", "namespace": world.namespace, "uid": uid},
        "epoch": 1,
        "rpcLayer": "grpc",
        "jobs": {
            "chief": addresses(world, "chief", 0),
            "worker": addresses(world, "worker", 0, 1),
            "ps": addresses(world, "ps", 0, 1),
        },
        "deviceFilters": {},
        "accelerators": {},
        "isolation": "Cluster",
    }


def test_view_is_the_same_for_every_job_without_filters(world):
    """Jobs without filters read the same text, byte for byte; a chief's view also names the pods."""
    publish(world, {"ps": {}, "worker": {"replicas": 2}})

    assert len({found["data"]["cluster.json"] for found in world.config_maps().values()}) == 1


def test_view_hides_what_the_filters_hide(world):
    """A worker whose filters name ps and chief sees these jobs and no worker."""
    publish(
        world,
        {
            "chief": {},
            "worker": {"replicas": 3, "deviceFilters": ["/job:ps", "/job:chief"]},
            "ps": {"replicas": 2, "deviceFilters": ["/job:worker", "/job:chief"]},
        },
    )

    assert world.view("c", "worker")["jobs"] == {
        "chief": addresses(world, "chief", 0),
        "ps": addresses(world, "ps", 0, 1),
    }
    assert world.view("c", "ps")["jobs"] == {
        "chief": addresses(world, "chief", 0),
        "worker": addresses(world, "worker", 0, 1, 2),
    }
    assert sorted(world.view("c", "chief")["jobs"]) == ["chief", "ps", "worker"]


def test_view_of_part_of_a_job_is_an_index_map(world):
    """A job that filters show only in part is a map from index to address, so that indices keep their meaning."""
    publish(world, {"worker": {"replicas": 4, "deviceFilters": ["/job:worker/task:1", "/job:worker/task:3"]}, "ps": {}})

    assert world.view("c", "worker")["jobs"] == {"worker": indexed(world, "worker", 1, 3)}


def test_view_of_a_prefix_of_a_job_is_an_index_map(world):
    """Tasks 0 and 1 of 3 are a map too: a list would mean two tasks."""
    publish(world, {"worker": {"replicas": 3}, "ps": {"deviceFilters": ["/job:worker/task:0", "/job:worker/task:1"]}})

    assert world.view("c", "ps")["jobs"]["worker"] == indexed(world, "worker", 0, 1)


def test_view_of_one_task_replaces_the_jobs(world):
    """TaskDeviceFilters give a task its own file; its filters replace those of the job."""
    publish(
        world,
        {
            "ps": {"replicas": 1},
            "worker": {
                "replicas": 3,
                "deviceFilters": ["/job:ps"],
                "taskDeviceFilters": {"1": ["/job:ps", "/job:worker/task:2"]},
            },
        },
    )
    config_map = world.config_maps()["c-worker"]

    assert sorted(config_map["data"]) == ["cluster.json", "task-1.json"]
    assert world.view("c", "worker", "task-1.json")["jobs"] == {
        "ps": addresses(world, "ps", 0),
        "worker": indexed(world, "worker", 2),
    }
    assert world.view("c", "worker")["jobs"] == {"ps": addresses(world, "ps", 0)}


def test_view_digest_of_a_pod_is_of_the_file_it_reads(world):
    """A task with its own file has the digest of that file, the others that of the job's."""
    publish(
        world,
        {
            "ps": {},
            "worker": {"replicas": 3, "deviceFilters": ["/job:ps"], "taskDeviceFilters": {"1": ["/job:worker"]}},
        },
    )
    told = {name: pod["metadata"]["annotations"]["tfcluster.dev/view"] for name, pod in world.pods().items()}

    assert told["c-worker-0"] == told["c-worker-2"]
    assert told["c-worker-1"] != told["c-worker-0"]


def test_view_evaluator_sees_the_cluster_and_is_not_in_it(world):
    """No view lists the evaluator, and its own view has all the others."""
    publish(world, {"chief": {}, "evaluator": {}, "worker": {"replicas": 1}})
    everybody = {"chief": addresses(world, "chief", 0), "worker": addresses(world, "worker", 0)}

    assert {job: world.view("c", job)["jobs"] for job in ("chief", "evaluator", "worker")} == dict.fromkeys(
        ("chief", "evaluator", "worker"), everybody
    )


def test_view_declares_filters_up_to_max_replicas(world):
    """Views have filters for tasks that can be added later, because TensorFlow keeps the first list that it gets."""
    publish(
        world,
        {
            "chief": {},
            "worker": {
                "replicas": 2,
                "maxReplicas": 6,
                "deviceFilters": ["/job:ps"],
                "taskDeviceFilters": {"3": ["/job:ps", "/job:chief"]},
            },
            "ps": {},
        },
    )
    view = world.view("c", "chief")

    assert view["deviceFilters"] == {
        "worker": [
            {"tasks": [0, 3], "filters": ["/job:ps"]},
            {"tasks": [3, 4], "filters": ["/job:ps", "/job:chief"]},
            {"tasks": [4, 6], "filters": ["/job:ps"]},
        ]
    }
    assert view["jobs"]["worker"] == addresses(world, "worker", 0, 1)


def test_view_lists_filters_of_visible_tasks_only(world):
    publish(
        world,
        {
            "chief": {},
            "worker": {"replicas": 2, "deviceFilters": ["/job:ps", "/job:chief"]},
            "ps": {"deviceFilters": ["/job:worker"]},
        },
    )

    assert world.view("c", "worker")["deviceFilters"] == {"ps": [{"tasks": [0, 1], "filters": ["/job:worker"]}]}


def test_view_tells_the_accelerators_of_a_job(world):
    """The view has the device requests of each job's tasks, and no entry for jobs without devices."""
    publish(world, {"worker": {"replicas": 2, "template": GPU}, "ps": {}})

    assert world.view("c", "ps")["accelerators"] == {"worker": {"limits": {"nvidia.com/gpu": 2}}}


def test_view_tells_a_task_its_own_accelerators_though_filters_hide_it(world):
    """A worker whose filters hide all workers still finds the accelerators of its own job."""
    publish(world, {"worker": {"template": GPU, "deviceFilters": ["/job:ps"]}, "ps": {}})

    assert world.view("c", "worker")["accelerators"] == {"worker": {"limits": {"nvidia.com/gpu": 2}}}


def test_view_tells_only_the_task_whose_device_is_lost(world, kubelet):
    """A task with an unhealthy device is listed with its healthy ones; other tasks are not listed."""
    require_kubernetes("1.36", "device health")
    publish(world, {"worker": {"replicas": 2, "template": GPU}})
    kubelet.run("c-worker-0", devices={"nvidia.com/gpu": [("GPU-0", "Healthy"), ("GPU-1", "Healthy")]})
    kubelet.run("c-worker-1", devices={"nvidia.com/gpu": [("GPU-2", "Healthy"), ("GPU-3", "Unhealthy")]})
    world.await_status("c", lambda status: status["accelerators"] == 3, what="three GPUs are counted")

    assert world.view("c", "worker")["accelerators"]["worker"] == {
        "limits": {"nvidia.com/gpu": 2},
        "tasks": {"1": {"nvidia.com/gpu": 1}},
    }


def test_view_is_not_rewritten_when_all_devices_are_healthy(world, kubelet):
    """A normal start with devices does not change a ConfigMap."""
    publish(world, {"worker": {"replicas": 2, "template": GPU}})
    before = world.config_maps()["c-worker"]["metadata"]["resourceVersion"]
    for i in range(2):
        kubelet.run(
            f"c-worker-{i}", devices={"nvidia.com/gpu": [(f"GPU-{2 * i}", "Healthy"), (f"GPU-{2 * i + 1}", "Healthy")]}
        )
    world.await_status("c", lambda status: status["accelerators"] == 4, what="four GPUs are counted")

    assert world.config_maps()["c-worker"]["metadata"]["resourceVersion"] == before


def test_view_epoch_does_not_count_devices(world, kubelet):
    """Losing a device rewrites the view without a new epoch: membership and filters are the same."""
    require_kubernetes("1.36", "device health")
    publish(world, {"worker": {"template": GPU}})
    kubelet.run("c-worker-0", devices={"nvidia.com/gpu": [("GPU-0", "Healthy"), ("GPU-1", "Unhealthy")]})
    world.await_status("c", lambda status: status["accelerators"] == 1, what="one GPU is counted")

    assert world.view("c", "worker")["epoch"] == 1


@pytest.mark.parametrize(
    ("spec", "suffix"),
    [({}, ".svc:2222"), ({"port": 8470}, ".svc:8470"), ({"clusterDomain": "corp.test"}, ".svc.corp.test:2222")],
    ids=["defaults", "the port of the cluster", "a cluster domain"],
)
def test_view_addresses_follow_port_and_domain(world, spec, suffix):
    publish(world, {"worker": {}}, **spec)

    assert world.view("c", "worker")["jobs"] == {"worker": [f"c-worker-0.c.{world.namespace}{suffix}"]}


def test_view_port_of_a_job_wins(world):
    publish(world, {"worker": {"port": 5000}, "ps": {}}, port=4000)

    assert world.view("c", "ps")["jobs"] == {
        "worker": addresses(world, "worker", 0, port=5000),
        "ps": addresses(world, "ps", 0, port=4000),
    }


def test_view_carries_the_rpc_layer(world):
    publish(world, {"worker": {}}, rpcLayer="grpc+verbs")

    assert world.view("c", "worker")["rpcLayer"] == "grpc+verbs"


def test_view_uses_dns_names_for_jobs_with_underscores(world):
    publish(world, {"parameter_server": {"replicas": 2}})

    assert world.view("c", "parameter_server")["jobs"] == {
        "parameter_server": addresses(world, "parameter-server", 0, 1)
    }
