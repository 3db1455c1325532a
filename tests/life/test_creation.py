"""The objects of a new TFCluster: which exist, who owns them, and how often each is written.

Unit tests and the references of the simulation have them field by field.
"""

from __future__ import annotations

import pytest
from support.manifests import pod_template
from support.objects import PODS, Object
from support.rbac import OPERATOR_USER
from support.world import World, task_names

OTHERS: Object = {
    "automountServiceAccountToken": True,
    "initContainers": [{"name": "fetch", "image": "registry.test/fetch:1"}],
}


@pytest.fixture(scope="module")
def since(audit, shared_world: World) -> int:  # noqa: ARG001 - the operator runs before the log is marked
    return audit.position()


@pytest.fixture(scope="module")
def mnist(shared_world: World, since: int) -> World:  # noqa: ARG001 - marked before the cluster exists
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


def test_creation_service_is_headless_and_publishes_early(mnist):
    spec = mnist.services()["mnist"]["spec"]

    assert (spec["clusterIP"], spec["type"], spec["publishNotReadyAddresses"]) == ("None", "ClusterIP", True)
    assert spec["selector"] == {"tfcluster.dev/cluster": "mnist"}
    assert sorted(port["port"] for port in spec["ports"]) == [2222, 3333]


@pytest.mark.parametrize("kind", ["pods", "config_maps", "services", "network_policies"])
def test_creation_everything_is_controlled_by_the_cluster(mnist, kind):
    owner = {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "name": "mnist",
        "uid": mnist.cluster("mnist")["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    found = getattr(mnist, kind)()

    assert found
    assert {name: thing["metadata"].get("ownerReferences") for name, thing in found.items()} == {
        name: [owner] for name in found
    }


def test_creation_every_container_knows_its_task(mnist):
    """Init containers and sidecars too have the task's address, its view and the resolver."""
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
    """The operator adds no finalizers, annotations or labels to the TFCluster."""
    metadata = mnist.cluster("mnist")["metadata"]

    assert [metadata.get(key) for key in ("finalizers", "annotations", "labels")] == [None, None, None]


def test_creation_writes_each_object_once(mnist, audit, since):
    """Each Service, policy, ConfigMap and pod costs one create; the chief's view gets all pods in one write."""
    writes = audit.writes(since, user=OPERATOR_USER, namespace=mnist.namespace)
    created = sorted((w.target, w.name) for w in writes if w.verb == "create" and w.resource != "events")

    assert created == sorted(
        [("services", "mnist")]
        + [("networkpolicies", name) for name in mnist.network_policies()]
        + [("configmaps", name) for name in [*mnist.config_maps(), *mnist.resolver_copies()]]
        + [("pods", name) for name in mnist.pods()]
    )
    others = [(w.verb, w.target, w.name) for w in writes if w.verb != "create" and w.target != "tfclusters/status"]
    assert set(others) <= {("patch", "configmaps", "mnist-chief"), ("patch", "pods", "mnist-chief-0")}
    assert len(others) <= 2


def test_creation_is_reported_once(world, operator, audit):  # noqa: ARG001 - it must run
    """A cluster whose pods wait for nodes costs one status write, followed by one event."""
    since = audit.position()
    world.launch("c", {"worker": {"replicas": 3}})
    world.await_event("c", "Created")
    audit.await_quiet(OPERATOR_USER, namespace=world.namespace)

    writes = audit.writes(since, user=OPERATOR_USER, namespace=world.namespace)
    objects = [w for w in writes if w.verb == "create" and w.resource != "events"]
    assert [w.target for w in writes if w not in objects] == ["tfclusters/status", "events"]
    made = (world.services(), world.network_policies(), world.config_maps(), world.resolver_copies(), world.pods())
    assert len(objects) == sum(map(len, made))


def test_creation_foundations_come_before_pods(mnist, audit, since):
    """All other objects exist before the first pod is requested: a pod starts with its name, view and NetworkPolicy."""
    writes = [w for w in audit.writes(since, user=OPERATOR_USER, namespace=mnist.namespace) if w.verb == "create"]
    foundations = max(w.finished for w in writes if w.resource in {"services", "networkpolicies", "configmaps"})

    assert foundations <= min(w.received for w in writes if w.resource == "pods")


def test_creation_in_two_namespaces_of_one_name(mnist, world, operator):  # noqa: ARG001 - it must run
    world.launch("mnist", {"worker": {"replicas": 1}})
    pods = world.await_pods(["mnist-worker-0"])

    assert environment(pods["mnist-worker-0"]["spec"]["containers"][0])["TFCLUSTER_ADDRESS"] == (
        f"mnist-worker-0.mnist.{world.namespace}.svc:2222"
    )
    assert len(mnist.pods()) == 6


def test_creation_of_the_longest_name(world, operator):  # noqa: ARG001 - it must run
    """A cluster whose pod names have 63 characters gets its pods, its Service and its status."""
    name = "c" * (63 - len("-worker-0"))
    world.launch(name, {"worker": {}})
    world.await_settled(name)

    assert (list(world.pods_of(name)), list(world.services())) == ([f"{name}-worker-0"], [name])


def test_creation_of_an_empty_job(world, operator):  # noqa: ARG001 - it must run
    world.launch("c", {"chief": {}, "worker": {"replicas": 0}})
    world.await_settled("c")

    assert sorted(world.pods()) == ["c-chief-0"]
    assert sorted(world.config_maps()) == ["c-chief", "c-worker"]
