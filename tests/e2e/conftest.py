"""The world of the end-to-end tests: a cluster with real kubelets, with the operator from ``make install``.

It is the cluster of TFCLUSTER_E2E_KUBECONFIG, else the one of ``make cluster``. Every test works in its own namespaces
and leaves the rest of the cluster unchanged.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import failure_report
import policy_enforcement
import pytest
from fake_devices import FakeDevices
from kubernetes import client, config
from live_world import LiveWorld
from operator_release import OperatorRelease
from support.objects import CRDS, NAMESPACES, SERVICE_ACCOUNTS, Objects
from support.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    path = Path(os.environ.get("TFCLUSTER_E2E_KUBECONFIG") or ROOT / ".local" / "kubeconfig")
    if not path.exists():
        pytest.fail(f"{path} does not exist: run `make install`, or set TFCLUSTER_E2E_KUBECONFIG", pytrace=False)
    return path.resolve()


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs kubectl on the cluster under test; the caller checks the exit status."""
    ours = ROOT / ".local" / "bin" / "kubectl"
    program = str(ours) if ours.exists() else shutil.which("kubectl")
    if program is None:
        pytest.fail("there is no kubectl: run `make cluster`, or put one on the PATH", pytrace=False)
    start = [program, "--kubeconfig", str(kubeconfig)]

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*start, *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=180
        )

    return run


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> client.ApiClient:
    """The official client, with the permissions of the kubeconfig."""
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


@pytest.fixture(scope="session")
def objects(api: client.ApiClient) -> Objects:
    return Objects(api)


@pytest.fixture(scope="session")
def new_namespace(objects: Objects) -> Callable[[], str]:
    """Creates namespaces that can hold pods."""

    def create() -> str:
        name = f"e2e-{uuid.uuid4().hex[:8]}"
        objects.create(NAMESPACES, "", {"metadata": {"name": name}})
        eventually(lambda: objects.get(SERVICE_ACCOUNTS, name, "default"), what=f"namespace {name} can hold pods")
        return name

    return create


@pytest.fixture
def namespace(new_namespace: Callable[[], str], objects: Objects) -> Iterator[str]:
    name = new_namespace()
    yield name
    objects.delete(NAMESPACES, "", name)


@pytest.fixture(scope="session")
def operator_image() -> str:
    """An image on the nodes: the operator and the resolver."""
    from scripts import images

    return os.environ.get("TFCLUSTER_E2E_OPERATOR_IMAGE") or images.loaded_name(images.OPERATOR)


@pytest.fixture(scope="session")
def training_image() -> str:
    """An image on the nodes: TensorFlow, the resolver and the examples' programs."""
    from scripts import images

    return os.environ.get("TFCLUSTER_E2E_TRAINING_IMAGE") or images.loaded_name(images.TRAINING)


@pytest.fixture(scope="session")
def operator_release(objects: Objects) -> OperatorRelease:
    """The operator that is installed on the cluster, available."""
    if objects.get(CRDS, "", "tfclusters.tfcluster.dev") is None:
        pytest.fail("the cluster does not know the kind TFCluster: run `make install`", pytrace=False)
    release = OperatorRelease(objects, os.environ.get("TFCLUSTER_E2E_OPERATOR_NAMESPACE", "tfcluster-system"))
    release.await_available()
    return release


@pytest.fixture(scope="session")
def live_world(
    api: client.ApiClient,
    objects: Objects,
    operator_image: str,
    operator_release: OperatorRelease,  # noqa: ARG001 - must be installed
    kubectl: Callable[..., subprocess.CompletedProcess[str]],  # noqa: ARG001 - the failure report needs it
) -> Callable[[str], LiveWorld]:
    """Creates the LiveWorld of a namespace."""
    return lambda namespace: LiveWorld(objects, namespace, api=api, image=operator_image)


@pytest.fixture
def world(live_world: Callable[[str], LiveWorld], namespace: str) -> LiveWorld:
    return live_world(namespace)


@pytest.fixture
def running(world: LiveWorld) -> LiveWorld:
    """A running cluster of a chief and two workers."""
    world.launch_listeners("c", {"chief": {}, "worker": {"replicas": 2}})
    world.await_ready("c")
    return world


@pytest.fixture(scope="module")
def shared_world(
    live_world: Callable[[str], LiveWorld], objects: Objects, new_namespace: Callable[[], str]
) -> Iterator[LiveWorld]:
    name = new_namespace()
    yield live_world(name)
    objects.delete(NAMESPACES, "", name)


@pytest.fixture(scope="module")
def restricted_world(
    live_world: Callable[[str], LiveWorld], objects: Objects, new_namespace: Callable[[], str]
) -> Iterator[LiveWorld]:
    """One namespace that enforces the Pod Security Standard `restricted`."""
    name = new_namespace()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    objects.patch(NAMESPACES, "", name, {"metadata": {"labels": labels}})
    yield live_world(name)
    objects.delete(NAMESPACES, "", name)


@pytest.fixture(scope="module")
def apply_example(
    restricted_world: LiveWorld,
    kubectl: Callable[..., subprocess.CompletedProcess[str]],
    operator_image: str,
    training_image: str,
) -> Callable[..., LiveWorld]:
    """Applies an example with kubectl, once, with the images of this cluster, in a `restricted` namespace."""
    applied = set()

    def apply(name: str, edit: Callable[[str], str] = str) -> LiveWorld:
        if (name, edit) not in applied:
            text = edit((ROOT / "examples" / name).read_text(encoding="utf-8"))
            text = text.replace("localhost/tfcluster-operator:dev", operator_image)
            for image in ("localhost/tfcluster-training:dev", "registry.example/digits:1"):
                text = text.replace(image, training_image)
            done = kubectl("-n", restricted_world.namespace, "apply", "-f", "-", stdin=text)
            assert done.returncode == 0, done.stderr
            applied.add((name, edit))
        return restricted_world

    return apply


@pytest.fixture
def two_gpus(world: LiveWorld) -> None:
    if world.allocatable(GPU) < 2:
        pytest.skip(f"no node of this cluster offers two {GPU}")


@pytest.fixture(scope="module")
def network_policies(kubeconfig: Path) -> Iterator[str]:
    """Makes the cluster enforce NetworkPolicies during the tests of a module if possible; otherwise the reason."""
    with policy_enforcement.enforced(ROOT, kubeconfig) as obstacle:
        yield obstacle


@pytest.fixture
def enforced_policies(network_policies: str) -> None:
    """Skips the test if the cluster does not enforce NetworkPolicies."""
    if network_policies:
        pytest.skip(network_policies)


@pytest.fixture
def fake_devices(kubeconfig: Path) -> Iterator[FakeDevices]:
    devices = FakeDevices(ROOT)
    if obstacle := devices.obstacle(kubeconfig):
        pytest.skip(obstacle)
    yield devices
    devices.heal()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a training test more time before it counts as hanging: it waits several times, 300 s each at most."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the state of the namespace and the operator's log to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and report.when != "teardown":
        report.sections.extend(failure_report.sections(item.funcargs))
