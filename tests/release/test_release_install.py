"""``install.yaml`` on a real API server: two applies with kubectl, and the deletion."""

import subprocess

import pytest
import yaml
from kubernetes import client, config
from release_world import IMAGE
from support.objects import CRDS, NAMESPACES, Kind, Objects
from support.waiting import eventually

pytestmark = pytest.mark.exhaustive

NAMESPACE = "tfcluster-system"
DEPLOYMENTS = Kind("apps/v1", "deployments")
CLUSTER_ROLES = Kind("rbac.authorization.k8s.io/v1", "clusterroles")


@pytest.fixture(scope="module")
def objects(bare_server) -> Objects:
    configuration = client.Configuration()
    config.load_kube_config(str(bare_server.kubeconfig), client_configuration=configuration)
    return Objects(client.ApiClient(configuration))


@pytest.fixture
def kubectl(bare_server, release):
    from local_kubernetes import binaries

    def run(*arguments: str) -> list[str]:
        command = [binaries.hyperkube(), *arguments, "--filename", release / "install.yaml"]
        command += ["--kubeconfig", bare_server.kubeconfig, "--output", "name"]
        # hyperkube acts as the program by whose name it is called.
        done = subprocess.run(
            ["kubectl", *command[1:]], executable=command[0], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run


def test_manifest_names_a_place_for_every_object(release):
    """The namespace comes first, the CRD next, and no object is created in kubectl's current namespace."""
    found = list(yaml.safe_load_all((release / "install.yaml").read_text()))
    kinds = [one["kind"] for one in found]
    cluster_wide = {"Namespace", "CustomResourceDefinition", "PriorityClass"}

    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds.count("CustomResourceDefinition") == 1
    for one in found:
        home = None if one["kind"] in cluster_wide or one["kind"].startswith(("Cluster", "Validating")) else NAMESPACE
        assert one["metadata"].get("namespace") == home, one["kind"]


def test_manifest_is_free_of_helm_metadata(release):
    text = (release / "install.yaml").read_text()

    assert "helm.sh/" not in text
    assert "managed-by: Helm" not in text


def test_kubectl_installs_and_upgrades(kubectl, objects, release, version):
    """`kubectl apply` creates everything, on client and server; a second time it changes nothing in the pods."""
    expected = len(list(yaml.safe_load_all((release / "install.yaml").read_text())))

    assert len(kubectl("apply")) == expected
    eventually(lambda: len(objects.list(CRDS)) == 1, what="the kind exists")
    (deployment,) = objects.list(DEPLOYMENTS, NAMESPACE)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{IMAGE}:{version}"
    assert "--all-namespaces" in container["args"]

    assert len(kubectl("apply", "--server-side", "--force-conflicts")) == expected
    (again,) = objects.list(DEPLOYMENTS, NAMESPACE)
    assert again["metadata"]["uid"] == deployment["metadata"]["uid"]
    assert again["spec"] == deployment["spec"]


def test_operator_goes_and_the_kind_stays(kubectl, objects):
    kubectl("apply")

    kubectl("delete", "--selector", "app.kubernetes.io/name=tfcluster-operator", "--wait=false")

    for kind, name in ((CRDS, "tfclusters.tfcluster.dev"), (NAMESPACES, NAMESPACE)):
        assert "deletionTimestamp" not in objects.get(kind, "", name)["metadata"]
    eventually(lambda: objects.list(DEPLOYMENTS, NAMESPACE) == [], what="the operator's Deployment is gone")
    ours = [found for found in objects.list(CLUSTER_ROLES) if "tfcluster" in found["metadata"]["name"]]
    assert ours == []
