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


def addresses(world: World, job: str, *indices: int) -> list[str]:
    return [f"c-{job}-{i}.c.{world.namespace}.svc:2222" for i in indices]


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
