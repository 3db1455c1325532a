"""An existing cluster: the operator is installed from a given registry, and with the quickstart.

The cluster is the one of ``make cluster``, used as a user's: its own release is removed in the meantime.
"""

import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from operator_release import OperatorRelease
from somebodys_cluster import ROOT, Somebody, become
from support import registry_program
from support.guide import Snippet, agrees, snippets
from support.objects import CRDS, NAMESPACES, Objects
from support.waiting import eventually
from task_programs import LISTEN, pod_template

from local_kubernetes import cluster_registry, node_layout, registry
from local_kubernetes.ports import free_ports

pytestmark = pytest.mark.alone

CHART = ROOT / "charts" / "tfcluster-operator"
GUIDE = ROOT / "docs" / "get-started" / "quickstart.md"
#: The public location of the guide's chart and image.
PUBLISHED_CHART = "oci://ghcr.io/OWNER/charts/tfcluster-operator"
PUBLISHED_TENSORFLOW = "docker.io/tensorflow/tensorflow:2.21.0"
OWN_CLUSTERS = ("node", "kind")


@pytest.fixture(scope="module")
def raised(kubeconfig: Path) -> str:
    """The kind of cluster that `make cluster` created; skips on one whose operator is not ours."""
    from local_kubernetes import checkout, choice

    name = choice.chosen().name
    if name not in OWN_CLUSTERS or checkout.KUBECONFIG.resolve() != kubeconfig:
        pytest.skip("only on a cluster that `make cluster` raised itself may the operator be taken away")
    return name


@pytest.fixture
def somebody(
    tmp_path: Path,
    kubeconfig: Path,
    raised: str,  # noqa: ARG001 - or there is nothing that may be done
    objects: Objects,
    operator_release: OperatorRelease,
) -> Iterator[Somebody]:
    """A user of the cluster, and the cluster without operator and CRD; `make install` of this checkout follows."""
    user = become(tmp_path, kubeconfig)
    user.run(f"helm uninstall tfcluster --namespace {operator_release.namespace} --wait")
    user.run("kubectl delete crd --ignore-not-found tfclusters.tfcluster.dev")
    yield user
    if objects.get(NAMESPACES, "", cluster_registry.NAMESPACE):
        objects.delete(NAMESPACES, "", cluster_registry.NAMESPACE)
    subprocess.run([sys.executable, "-m", "scripts.install"], cwd=ROOT, check=True)


@pytest.fixture
def registry_image(raised: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - or its nodes take no image
    """The nodes have the image of a registry, which others download from the internet."""
    from local_kubernetes import choice

    choice.chosen().load_image(registry_program.archive(), registry_program.IMAGE)
    monkeypatch.setenv(cluster_registry.IMAGE_VARIABLE, registry_program.IMAGE)


@pytest.mark.exhaustive
def test_install_from_a_registry_that_is_given(raised, somebody, operator_release, world, objects):
    """`make install` with a user's kubeconfig pushes the image, installs it from there, and the operator works."""
    if raised != "node":
        pytest.skip("only our own node has a network that a registry of the test can be in")
    enter = ("nsenter", f"--target={node_layout.first_process()}", "--net")
    (port,) = free_ports(1)
    checkout = somebody.checkout()

    # The machine's loopback is not the node's: one registry on each, with the same images.
    serving = functools.partial(registry_program.serving, somebody.folder, port)
    with serving() as given, serving(enter=enter):
        variables = {"TFCLUSTER_KUBERNETES": "current", "TFCLUSTER_REGISTRY": f"{given}/team"}
        said = somebody.run(f"cd {checkout} && make install 2>&1", **variables)
        operator_release.await_available()

    (container,) = operator_release.deployment()["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(f"{given}/team/tfcluster-operator:"), said
    assert (checkout / ".local" / "bin" / "kubectl").readlink() == somebody.folder / "bin" / "kubectl"
    assert objects.get(NAMESPACES, "", cluster_registry.NAMESPACE) is None
    world.launch("c", {"worker": {"template": pod_template(world.image, LISTEN)}})
    world.await_ready("c")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("registry_image")
def test_quickstart(somebody, training_image, namespace, objects):
    guide = snippets(GUIDE)
    manifest = next(s for s in guide if s.place == 'title="quickstart.yaml"').text
    assert manifest.count(PUBLISHED_TENSORFLOW) == 2
    (somebody.folder / "quickstart.yaml").write_text(manifest.replace(PUBLISHED_TENSORFLOW, training_image))
    somebody.run(f"kubectl config set-context --current --namespace={namespace}")

    inside = cluster_registry.start()
    with cluster_registry.forwarded() as outside:
        chart = publish(somebody, inside, outside)
        for command, told in commands(guide):
            printed = somebody.run(command.replace(PUBLISHED_CHART, chart), timeout=700)
            assert agrees(printed.splitlines(), told), f"{command}\n{printed}"

    assert objects.get(CRDS, "", "tfclusters.tfcluster.dev") is None
    eventually(lambda: objects.get(NAMESPACES, "", "tfcluster-system") is None, what="nothing is left")


def publish(somebody: Somebody, inside: str, outside: str) -> str:
    """Push the operator's image and the chart to the registry, as a release does; return the chart for helm."""
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    archive = "import scripts.images as images; print(images.OPERATOR.archive())"
    built = somebody.run(f"cd {somebody.checkout()} && .venv/bin/python -c '{archive}'").split()[-1]
    registry.push(Path(built), f"{outside}/tfcluster-operator:{version}")
    somebody.run(f"cp -rL {CHART} chart")
    values = (somebody.folder / "chart" / "values.yaml").read_text(encoding="utf-8")
    given = yaml.safe_load(values)
    given["image"] |= {"repository": f"{inside}/tfcluster-operator", "tag": version}
    (somebody.folder / "chart" / "values.yaml").write_text(yaml.safe_dump(given), encoding="utf-8")
    somebody.run(
        f"helm package chart && helm push tfcluster-operator-{version}.tgz oci://{outside}/charts --plain-http"
    )
    return f"oci://{outside}/charts/tfcluster-operator --plain-http"


def commands(guide: list[Snippet]) -> Iterator[tuple[str, list[str]]]:
    for snippet in guide:
        if snippet.place == "run":
            yield from snippet.commands()


def test_quickstart_is_short():
    """With an existing cluster, at most ten commands are needed, including the clean-up."""
    assert 0 < len(list(commands(snippets(GUIDE)))) <= 10
