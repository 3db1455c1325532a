"""The watch of TFClusters on a real API server: a late CRD, a deleted CRD, and a forbidden namespace."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.control_planes import await_served, client_of
from support.manifests import tfcluster
from support.objects import CLUSTER_ROLES, CRDS, NAMESPACES, ROLE_BINDINGS, SERVICE_ACCOUNTS, TFCLUSTERS, Objects
from support.operator_process import OperatorProcess
from support.rbac import OPERATOR_RULES, bind
from support.waiting import eventually
from support.world import World

ROOT = Path(__file__).resolve().parents[2]
CRD = "tfclusters.tfcluster.dev"
USER = "somebody"


@pytest.fixture(scope="module")
def things(own_server) -> Objects:
    """Administrator access to it, with the namespaces a and b, and an unbound role for the operator."""
    objects = Objects(client_of(own_server))
    for name in ("a", "b"):
        objects.create(NAMESPACES, "", {"metadata": {"name": name}})
        eventually(lambda name=name: objects.get(SERVICE_ACCOUNTS, name, "default"), what=f"{name} can hold pods")
    rules = [{"apiGroups": [group], "resources": [kind], "verbs": list(verbs)} for group, kind, verbs in OPERATOR_RULES]
    objects.create(CLUSTER_ROLES, "", {"metadata": {"name": USER}, "rules": rules})
    return objects


@pytest.fixture
def process(own_server, tmp_path: Path) -> Iterator[OperatorProcess]:
    found = OperatorProcess(kubeconfig=Path(own_server.kubeconfig), log=tmp_path / "operator.log")
    yield found
    found.kill()


def define(objects: Objects) -> None:
    objects.create(CRDS, "", yaml.safe_load((ROOT / "crds" / "tfcluster.yaml").read_text(encoding="utf-8")))


def undefine(objects: Objects) -> None:
    objects.delete(CRDS, "", CRD)
    eventually(lambda: objects.get(CRDS, "", CRD), lambda found: found is None, what="the definition is gone")


def create(objects: Objects, namespace: str, name: str) -> None:
    await_served(objects, TFCLUSTERS)
    objects.create(TFCLUSTERS, namespace, tfcluster(name).job("worker").build())


def test_crd_can_be_created_late_deleted_and_recreated(things: Objects, process: OperatorProcess):
    process.start(wait=False)
    eventually(lambda: "does not know the kind" in process.tail(), what="it says what it waits for")
    eventually(process.readiness, lambda answer: answer == "503", what="it is not ready")
    assert process.get_health("healthz") == "200"
    for name in ("first", "second"):
        define(things)
        create(things, "a", name)
        eventually(lambda name=name: f"{name}-worker-0" in World(things, "a").pods(), what=f"{name} has its pod")
        eventually(process.readiness, lambda answer: answer == "200", what="it is ready")
        undefine(things)
        eventually(process.readiness, lambda answer: answer == "503", what="it says that the kind is gone")
    assert process.running
    assert "Traceback" not in process.tail(characters=100_000)


def test_forbidden_namespace_does_not_block_another(own_server, things: Objects, process: OperatorProcess):
    define(things)
    bind(things, USER, "b", "ClusterRole", USER)
    process.start(kubeconfig=Path(own_server.kubeconfig_for(USER)), arguments=("--namespace", "a", "--namespace", "b"))
    create(things, "b", "open")
    eventually(lambda: "open-worker-0" in World(things, "b").pods(), what="the open namespace is served")
    create(things, "a", "closed")
    bind(things, USER, "a", "ClusterRole", USER)
    eventually(lambda: "closed-worker-0" in World(things, "a").pods(), what="the other one is served")
    things.delete(ROLE_BINDINGS, "a", f"{USER}-{USER}")
    process.kill()
    process.start(kubeconfig=Path(own_server.kubeconfig_for(USER)), arguments=("--namespace", "a", "--namespace", "b"))
    create(things, "b", "later")
    eventually(lambda: "later-worker-0" in World(things, "b").pods(), what="it is served after a restart, too")
