"""The objects of a new TFCluster, field by field, on a real API server: the Service, the ConfigMaps and the pods."""

from __future__ import annotations

import pytest
from support.manifests import pod_template
from support.objects import PODS, TFCLUSTERS, Object
from support.rbac import OPERATOR_USER
from support.world import World, task_names

INIT = {"name": "fetch", "image": "registry.test/fetch:1", "command": ["fetch", "/data"]}
MAIN = {
    "name": "tensorflow",
    "image": "registry.test/train:1",
    "command": ["python", "-u"],
    "args": ["train.py", "--steps=10"],
    "workingDir": "/src",
    "env": [{"name": "LEARNING_RATE", "value": "0.1"}, {"name": "STEPS", "value": "10"}],
    "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "2"}, "requests": {"cpu": "500m"}},
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "ports": [{"name": "profiler", "containerPort": 6009}],
}
SIDECAR = {"name": "logs", "image": "registry.test/logs:1"}
WORKER = {
    "metadata": {"labels": {"team": "vision"}, "annotations": {"example.test/note": "kept"}},
    "spec": {
        "initContainers": [INIT],
        "containers": [MAIN, SIDECAR],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"pool": "gpu"},
        "terminationGracePeriodSeconds": 5,
    },
}
ASKS_FOR_A_TOKEN = pod_template(spec={"automountServiceAccountToken": True})
ENVIRONMENT = ("TFCLUSTER_JOB", "TFCLUSTER_TASK_INDEX", "TFCLUSTER_ADDRESS")
COMMON_LABELS = {
    "app.kubernetes.io/name": "tfcluster",
    "app.kubernetes.io/instance": "mnist",
    "app.kubernetes.io/managed-by": "tfcluster-operator",
    "tfcluster.dev/cluster": "mnist",
}


@pytest.fixture(scope="module")
def since(audit, shared_world: World) -> int:  # noqa: ARG001 - the operator runs before the log is marked
    return audit.position()


@pytest.fixture(scope="module")
def mnist(shared_world: World, since: int) -> World:  # noqa: ARG001 - marked before the cluster exists
    shared_world.launch(
        "mnist",
        {
            "chief": {"template": ASKS_FOR_A_TOKEN},
            "worker": {"replicas": 3, "port": 3333, "template": WORKER},
            "parameter_server": {"replicas": 2},
        },
        clusterDomain="cluster.test",
    )
    shared_world.await_settled("mnist")
    return shared_world


@pytest.fixture(scope="module")
def worker(mnist: World) -> Object:
    return mnist.demand(PODS, "mnist-worker-1")


def container(pod: Object, name: str) -> Object:
    return next(
        found for found in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]] if found["name"] == name
    )


def environment(found: Object) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in found["env"]}


def test_creation_one_pod_a_task_and_one_config_map_a_job(mnist):
    assert sorted(mnist.pods()) == sorted(task_names("mnist", chief=1, worker=3, parameter_server=2))
    found = {name: sorted(config_map["data"]) for name, config_map in mnist.config_maps().items()}
    assert found == {name: ["cluster.json"] for name in ("mnist-chief", "mnist-parameter-server", "mnist-worker")}


def test_creation_service_is_headless_and_publishes_early(mnist):
    """The one Service has no cluster IP, publishes pods before they are ready, and has each distinct port once."""
    (service,) = mnist.services().values()
    spec = service["spec"]

    assert service["metadata"]["labels"] == COMMON_LABELS
    assert sorted(port["port"] for port in spec["ports"]) == [2222, 3333]
    assert (spec["clusterIP"], spec["type"], spec["publishNotReadyAddresses"], spec["selector"]) == (
        "None",
        "ClusterIP",
        True,
        {"tfcluster.dev/cluster": "mnist"},
    )


@pytest.mark.parametrize("kind", ["pods", "config_maps", "services"])
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

    assert {name: thing["metadata"].get("ownerReferences") for name, thing in found.items()} == {
        name: [owner] for name in found
    }


@pytest.mark.parametrize("name", ["fetch", "tensorflow", "logs"])
def test_creation_environment_of_every_container(mnist, worker, name):
    found = environment(container(worker, name))

    assert [found[key] for key in ENVIRONMENT] == [
        "worker",
        "1",
        f"mnist-worker-1.mnist.{mnist.namespace}.svc.cluster.test:3333",
    ]


@pytest.mark.parametrize("name", ["fetch", "tensorflow", "logs"])
def test_creation_view_is_mounted_whole_in_every_container(worker, name):
    """Every container mounts the ConfigMap at /etc/tfcluster, never with subPath, which the kubelet does not update."""
    mounts = [m for m in container(worker, name)["volumeMounts"] if m["name"] == "tfcluster-view"]

    assert [(m["mountPath"], m.get("readOnly"), m.get("subPath")) for m in mounts] == [("/etc/tfcluster", True, None)]


@pytest.mark.parametrize(("name", "declared"), [("fetch", INIT), ("tensorflow", MAIN), ("logs", SIDECAR)])
def test_creation_containers_are_left_as_declared(worker, name, declared):
    """Image, command, arguments, resources and ports are unchanged; environment and mounts keep their order."""
    found = container(worker, name)
    untouched = {
        key: value for key, value in declared.items() if key not in {"env", "volumeMounts", "ports", "resources"}
    }

    assert {key: found[key] for key in untouched} == untouched
    assert ("command" in found, "args" in found) == ("command" in declared, "args" in declared)
    assert [e for e in found["env"] if e["name"] not in {*ENVIRONMENT, "PYTHONPATH"}] == declared.get("env", [])
    own = [m for m in found["volumeMounts"] if not m["name"].startswith("tfcluster-")]
    assert own == declared.get("volumeMounts", [])
    assert [port["containerPort"] for port in found.get("ports", [])] == [
        port["containerPort"] for port in declared.get("ports", [])
    ]
    assert found["resources"].get("limits") == declared.get("resources", {}).get("limits")


def test_creation_template_may_ask_for_a_token(mnist):
    assert mnist.demand(PODS, "mnist-chief-0")["spec"]["automountServiceAccountToken"] is True


def test_creation_delivers_one_copy_of_the_resolver(mnist, worker):
    """One immutable ConfigMap in the namespace holds the resolver, and every container has it on its search path."""
    (name,) = mnist.resolver_copies()
    volumes = {v["name"]: v for v in worker["spec"]["volumes"]}

    assert mnist.resolver_copies()[name]["immutable"]
    assert volumes["tfcluster-resolver"]["configMap"]["name"] == name
    for each in ("fetch", "tensorflow", "logs"):
        (mount,) = (m for m in container(worker, each)["volumeMounts"] if m["name"] == "tfcluster-resolver")
        assert environment(container(worker, each))["PYTHONPATH"].startswith(mount["mountPath"])


@pytest.mark.usefixtures("operator")
def test_creation_delivers_no_resolver_where_none_is_wanted(world):
    """With resolver.delivery None, its ConfigMap, volume and search path are missing."""
    world.launch("c", {"worker": {}}, resolver={"delivery": "None"})
    world.await_settled("c")
    pod = world.demand(PODS, "c-worker-0")

    assert world.resolver_copies() == {}
    assert [v["name"] for v in pod["spec"]["volumes"]] == ["tfcluster-view"]
    assert "PYTHONPATH" not in environment(container(pod, "tensorflow"))


@pytest.mark.usefixtures("operator")
def test_creation_restarts_are_the_operators(world):
    """For every restartPolicy of a job, the pod's own is Never: the kubelet must not restart containers."""
    policies = {"ps": "Always", "worker": "OnFailure", "chief": "ExitCode", "evaluator": "Never"}
    world.launch("c", {job: {"restartPolicy": policy} for job, policy in policies.items()})
    pods = world.await_pods_of("c", task_names("c", **dict.fromkeys(policies, 1)))

    assert {pod["spec"]["restartPolicy"] for pod in pods.values()} == {"Never"}


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

    assert environment(container(pods["mnist-worker-0"], "tensorflow"))["TFCLUSTER_ADDRESS"] == (
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


def test_twenty_clusters_are_created_concurrently(world, operator):  # noqa: ARG001 - it must run
    names = [f"c{i:02}" for i in range(20)]
    for name in names:
        world.launch(name, {"worker": {"replicas": 2}})

    pods = world.await_pods(pod for name in names for pod in task_names(name, worker=2))
    owners = {name: pod["metadata"]["ownerReferences"][0]["name"] for name, pod in pods.items()}

    assert owners == {name: name.split("-")[0] for name in pods}
    assert len(world.objects.list(TFCLUSTERS, world.namespace)) == 20
