"""The resolver outside of pods: it reads published views through the real API server."""

import pickle
import socket
import sys
from pathlib import Path

import pytest
import yaml
from support.manifests import pod_template
from support.objects import CONFIG_MAPS, TFCLUSTERS
from support.rbac import grant
from support.waiting import eventually

from tfcluster_resolver import TFClusterResolver
from tfcluster_resolver.errors import (
    KubernetesClientNotFoundError,
    KubernetesConfigurationError,
    KubernetesRightsError,
    KubernetesUnreachableError,
    MalformedViewError,
    NoSuchClusterError,
    NoSuchTaskError,
    NotPublishedError,
    UnsupportedViewError,
    ViewError,
)

GPU = pod_template(resources={"limits": {"nvidia.com/gpu": "2"}})
FILTERED = {
    "chief": {},
    "worker": {"replicas": 2, "maxReplicas": 3, "deviceFilters": ["/job:ps", "/job:chief"], "template": GPU},
    "ps": {"replicas": 2, "deviceFilters": ["/job:worker/task:1"]},
}

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def ask(control_plane, world):
    """Builds the resolver of a cluster in the test's namespace, by default as an administrator."""

    def make(name: str = "c", *, kubeconfig: Path | None = None, **arguments) -> TFClusterResolver:
        arguments = {"namespace": world.namespace} | arguments
        return TFClusterResolver.from_kubernetes(name, kubeconfig=kubeconfig or control_plane.kubeconfig, **arguments)

    return make


@pytest.fixture
def kubeconfig_with(control_plane, world):
    """Builds the kubeconfig of a user with exactly these permissions in the test's namespace."""

    def make(user: str, *rules: tuple[str, str, str]) -> Path:
        user = f"{user}-{world.namespace}"
        if rules:
            listed = [{"apiGroups": [group], "resources": [kind], "verbs": [verb]} for group, kind, verb in rules]
            grant(world.objects, user, world.namespace, listed)
        return Path(control_plane.kubeconfig_for(user))

    return make


def publish(world, jobs, name: str = "c") -> None:
    world.launch(name, jobs)
    world.await_settled(name)


def addresses(world, job: str, count: int) -> list[str]:
    return [f"c-{job}-{i}.c.{world.namespace}.svc:2222" for i in range(count)]


def test_whole_cluster_is_seen_though_tasks_are_filtered(world, ask):
    publish(world, FILTERED)
    resolver = ask(task_type="chief", task_id=0)
    assert resolver.cluster_spec().as_dict() == {
        "chief": addresses(world, "chief", 1),
        "ps": addresses(world, "ps", 2),
        "worker": addresses(world, "worker", 2),
    }
    assert resolver.membership().device_filters() == {
        "worker": dict.fromkeys(range(3), ("/job:ps", "/job:chief")),
        "ps": dict.fromkeys(range(2), ("/job:worker/task:1",)),
    }
    assert resolver.num_accelerators("worker", 1) == {"GPU": 2}
    assert resolver.master() == f"grpc://{addresses(world, 'chief', 1)[0]}"
    assert (resolver.rpc_layer, resolver.membership().view.namespace) == ("grpc", world.namespace)


def test_answers_are_fresh_and_a_snapshot_stays(world, ask):
    publish(world, FILTERED)
    resolver = ask()
    frozen = resolver.snapshot()
    generation = world.scale("c", replicas=3)
    eventually(lambda: resolver.cluster_spec().num_tasks("worker"), lambda count: count == 3, what="3 workers are seen")
    eventually(lambda: resolver.epoch, lambda epoch: epoch == generation, what="the epoch is that of the edit")
    assert (frozen.cluster_spec().num_tasks("worker"), frozen.epoch) == (2, 1)
    world.scale("c", replicas=1)
    eventually(lambda: resolver.cluster_spec().num_tasks("worker"), lambda count: count == 1, what="1 worker is seen")


def test_watch_follows_the_api_server(world, ask):
    publish(world, {"worker": {"replicas": 1}, "ps": {}})
    following = ask().watch(timeout=60)
    world.scale("c", replicas=2)
    change = next(following)
    assert [(task.job, task.index) for task in change.added] == [("worker", 1)]
    assert change.resolver.cluster_spec().num_tasks("worker") == 2


def test_resolver_is_pickled_without_its_connection(world, ask, monkeypatch):
    publish(world, {"worker": {"replicas": 2}})
    resolver = ask(task_type="worker", task_id=1)
    other = pickle.loads(pickle.dumps(resolver))  # noqa: S301 - our own bytes
    assert other.cluster_spec() == resolver.cluster_spec()
    assert other.task_id == 1
    frozen, spec = pickle.dumps(resolver.snapshot()), resolver.cluster_spec()
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    assert pickle.loads(frozen).cluster_spec() == spec  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("text", "kind"), [("{", MalformedViewError), ('{"version": 99}', UnsupportedViewError)], ids=["malformed", "newer"]
)
def test_spoilt_view_is_named(world, ask, operator, text, kind):
    publish(world, {"worker": {}})
    operator.kill()
    world.patch(CONFIG_MAPS, "c-worker", {"data": {"cluster.json": text}})
    with pytest.raises(kind, match=rf"cluster\.json of ConfigMap {world.namespace}/c-worker"):
        ask()


def test_namespace_is_that_of_the_context(world, ask, control_plane, tmp_path):
    publish(world, {"worker": {}})
    document = yaml.safe_load(Path(control_plane.kubeconfig).read_text())
    there = document["contexts"][0]
    document["contexts"].append({"name": "mine", "context": there["context"] | {"namespace": world.namespace}})
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    resolver = ask(kubeconfig=tmp_path / "kubeconfig", namespace=None, context="mine")
    assert resolver.membership().view.namespace == world.namespace
    with pytest.raises(NoSuchClusterError, match="TFCluster default/c"):
        ask(kubeconfig=tmp_path / "kubeconfig", namespace=None)
    with pytest.raises(KubernetesConfigurationError, match="nothing-like-it"):
        ask(context="nothing-like-it")


@pytest.mark.parametrize("content", [None, "", "[]", "nonsense: {", "clusters: 3"])
def test_unusable_kubeconfig_is_named(ask, tmp_path, content):
    if content is not None:
        (tmp_path / "kubeconfig").write_text(content)
    with pytest.raises(KubernetesConfigurationError, match="Pass kubeconfig="):
        ask(kubeconfig=tmp_path / "kubeconfig")


def test_server_that_does_not_answer_is_named(ask, control_plane, tmp_path):
    document = yaml.safe_load(Path(control_plane.kubeconfig).read_text())
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{closed.getsockname()[1]}"
    document["clusters"][0]["cluster"]["server"] = server
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    with pytest.raises(KubernetesUnreachableError, match=server) as caught:
        ask(kubeconfig=tmp_path / "kubeconfig")
    assert isinstance(caught.value, ConnectionError)


def test_what_is_missing_is_named(world, ask, kubeconfig_with, monkeypatch):
    """A cluster, its views, a task, a permission and the package ``kubernetes``; a foreign ConfigMap is ignored."""
    publish(world, FILTERED)
    for arguments in ({"name": "nobody"}, {"namespace": "default"}):
        with pytest.raises(NoSuchClusterError, match=rf"TFCluster {arguments.get('namespace', world.namespace)}/"):
            ask(**arguments)
    world.launch("managed", {"worker": {}}, managedBy="example.com/other")
    with pytest.raises(NotPublishedError, match="exists and its views are not published yet"):
        ask("managed")
    with pytest.raises(NoSuchTaskError):
        ask().master("worker", 7)
    with pytest.raises(KubernetesRightsError, match="the verb list on configmaps") as refused:
        ask(kubeconfig=kubeconfig_with("nobody"))
    assert isinstance(refused.value, (PermissionError, ViewError))
    # Only listing ConfigMaps is required; without get on TFClusters, the message names two causes.
    kubeconfig = kubeconfig_with("reader", ("", "configmaps", "list"))
    assert ask(kubeconfig=kubeconfig).cluster_spec().num_tasks("worker") == 2
    with pytest.raises(NoSuchClusterError, match="the TFCluster does not exist, or the operator has not published"):
        ask("nobody", kubeconfig=kubeconfig)
    labels = {"tfcluster.dev/cluster": "c", "tfcluster.dev/job": "worker"}
    foreign = {"metadata": {"name": "foreign", "labels": labels}, "data": {"cluster.json": "no view"}}
    world.objects.create(CONFIG_MAPS, world.namespace, foreign)
    resolver = ask()
    assert sorted(resolver.cluster_spec().jobs) == ["chief", "ps", "worker"]
    world.remove("c")
    eventually(lambda: world.get(TFCLUSTERS, "c"), lambda found: found is None, what="the TFCluster is gone")
    world.delete(CONFIG_MAPS, "foreign")
    eventually(world.config_maps, lambda found: not found, what="its views are collected")
    with pytest.raises(NoSuchClusterError):
        resolver.cluster_spec()
    for module in ("kubernetes", "kubernetes.client"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(KubernetesClientNotFoundError, match="pip install kubernetes") as missing:
        ask()
    assert isinstance(missing.value, ImportError)
