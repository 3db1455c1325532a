"""The objects of a new TFCluster; unit tests and the references of the simulation have them field by field."""

import pytest
from support.manifests import pod_template
from support.objects import PODS, Object
from support.world import World, task_names

OTHERS: Object = {
    "automountServiceAccountToken": True,
    "initContainers": [{"name": "fetch", "image": "registry.test/fetch:1"}],
}


@pytest.fixture(scope="module")
def mnist(shared_world: World) -> World:
    template = pod_template(spec=OTHERS)
    template["spec"]["containers"].append({"name": "logs", "image": "registry.test/logs:1"})
    jobs = {
        "chief": {},
        "worker": {"replicas": 3, "port": 3333, "template": template},
        "parameter_server": {"replicas": 2},
    }
    shared_world.launch("mnist", jobs, clusterDomain="cluster.test")
    shared_world.await_settled("mnist")
    return shared_world


def environment(container: Object) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_creation_makes_a_pod_a_task_and_a_config_map_a_job(mnist):
    assert sorted(mnist.pods()) == sorted(task_names("mnist", chief=1, worker=3, parameter_server=2))
    assert sorted(mnist.config_maps()) == ["mnist-chief", "mnist-parameter-server", "mnist-worker"]
    assert list(mnist.services()) == ["mnist"]


def test_creation_every_container_knows_its_task(mnist):
    spec = mnist.demand(PODS, "mnist-worker-1")["spec"]
    containers = {one["name"]: one for one in [*spec["initContainers"], *spec["containers"]]}

    assert sorted(containers) == ["fetch", "logs", "tensorflow"]
    for one in containers.values():
        variables, mounts = environment(one), {mount["name"]: mount for mount in one["volumeMounts"]}
        address = f"mnist-worker-1.mnist.{mnist.namespace}.svc.cluster.test:3333"
        assert variables["TFCLUSTER_ADDRESS"] == address
        assert (variables["TFCLUSTER_JOB"], variables["TFCLUSTER_TASK_INDEX"]) == ("worker", "1")
        # The kubelet does not update a file that is mounted with subPath.
        assert (mounts["tfcluster-view"]["mountPath"], "subPath" in mounts["tfcluster-view"]) == (
            "/etc/tfcluster",
            False,
        )
        assert variables["PYTHONPATH"].startswith(mounts["tfcluster-resolver"]["mountPath"])


def test_creation_gives_an_api_token_only_if_the_template_asks(mnist):
    asks = {name: pod["spec"]["automountServiceAccountToken"] for name, pod in mnist.pods().items()}

    assert {name for name, token in asks.items() if token} == set(task_names("mnist", worker=3))


def test_creation_leaves_no_trace_on_the_cluster_object(mnist):
    metadata = mnist.cluster("mnist")["metadata"]

    assert [metadata.get(key) for key in ("finalizers", "annotations", "labels")] == [None, None, None]


def test_creation_of_the_longest_name(world, operator):  # noqa: ARG001 - it must run
    name = "c" * (63 - len("-worker-0"))
    world.launch(name, {"worker": {}})
    world.await_settled(name)

    assert (list(world.pods_of(name)), list(world.services())) == ([f"{name}-worker-0"], [name])
