"""Shared fixtures; for tests that need Kubernetes, one real control plane per session and a namespace per test.

Nothing of Kubernetes starts unless a test requests it.
"""

import importlib.util
import os
import random
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from kubernetes import client

ROOT = Path(__file__).resolve().parent.parent
# The test cluster tool is a folder of the repository, not an installed package.
sys.path.insert(0, str(ROOT))

from support import prometheus  # noqa: E402 - after the path
from support.audit import AuditLog  # noqa: E402 - after the path
from support.control_planes import (  # noqa: E402 - after the path
    client_of,
    create_namespace,
    delete_namespace,
    install_crd,
    no_traceback,
)
from support.manifests import tfcluster  # noqa: E402 - after the path
from support.objects import CONFIG_MAPS, TFCLUSTERS, Objects  # noqa: E402 - after the path
from support.operator_process import OperatorProcess  # noqa: E402 - after the path
from support.pods import StandInKubelet  # noqa: E402 - after the path
from support.rbac import OPERATOR_USER, grant_operator_rights  # noqa: E402 - after the path
from support.waiting import eventually  # noqa: E402 - after the path
from support.world import World  # noqa: E402 - after the path

pytest_plugins = ["support.skips", "support.own_server"]
#: Fixtures that start a control plane.
SERVERS = {"control_plane", "own_server", "bare_server"}

# Without a deadline: a busy machine must not fail a test.
slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# The same examples in each run, so that a failure points to the change; HYPOTHESIS=random tries others.
settings.register_profile("same", derandomize=True, database=None, **slow)
settings.register_profile("random", print_blob=True, **slow)
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In the background of a script, Ctrl-C is ignored, also by every program that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def has_tensorflow() -> bool:
    """Return whether TensorFlow is installed; tests/tensorflow, a folder without a module, does not count."""
    found = importlib.util.find_spec("tensorflow")
    return found is not None and found.origin is not None


#: They run in a separate environment (`make tensorflow-tests`) without a Kubernetes client for this file.
collect_ignore = [] if has_tensorflow() else ["tensorflow"]


def pytest_report_header() -> str:
    """Report which tests are left out."""
    return "tests/tensorflow is left to `make tensorflow-tests`" if collect_ignore else "with tests/tensorflow"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs that tests need before the first test: it takes minutes the first time, but no test's time."""
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if session.config.option.collectonly or not needed & {*SERVERS, "helm", "prometheus_built"}:
        return
    from local_kubernetes import binaries

    if needed & SERVERS:
        binaries.hyperkube()
    if "helm" in needed:
        binaries.helm()
    if "prometheus_built" in needed:
        prometheus.programs()


@pytest.fixture(autouse=True)
def _same_chance_in_every_run() -> None:
    """The operator draws its jitter from ``random``."""
    random.seed(7)


@pytest.fixture
def listen() -> Iterator[Callable[[], str]]:
    """Opens ports that accept connections, and returns their addresses."""
    with ExitStack() as opened:
        yield lambda: "{}:{}".format(*opened.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname())


@pytest.fixture(scope="session")
def prometheus_built() -> Path:
    """The folder of Prometheus and promtool; tests that use them request it, so that they are built in time."""
    return prometheus.programs()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory):
    """A real etcd, kube-apiserver and controllers on loopback, without nodes."""
    from local_kubernetes.control_plane import start

    plane = start(tmp_path_factory.mktemp("control-plane"), prepare=lambda made: install_crd(Objects(client_of(made))))
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def admin(control_plane) -> client.ApiClient:
    """The official client as an administrator, on a server with the CRD."""
    return client_of(control_plane)


@pytest.fixture(scope="session")
def objects(admin: client.ApiClient) -> Objects:
    """Administrator access to objects as dicts."""
    return Objects(admin)


@pytest.fixture(scope="session")
def new_namespace(objects: Objects) -> Callable[[], str]:
    """Creates namespaces for tests that need several."""

    def create() -> str:
        name = f"test-{uuid.uuid4().hex[:8]}"
        create_namespace(objects, name)
        return name

    return create


@pytest.fixture(scope="session")
def garbage_collector(objects: Objects, new_namespace: Callable[[], str]) -> None:
    """Wait until the garbage collector has discovered TFClusters; if it started before the CRD, that takes 30 s."""
    name = new_namespace()
    owner = objects.create(TFCLUSTERS, name, tfcluster("owner").job("worker").spec(suspend=True).build())
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {
        key: owner["metadata"][key] for key in ("name", "uid")
    }
    objects.create(CONFIG_MAPS, name, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    objects.delete(TFCLUSTERS, name, "owner")
    eventually(
        lambda: objects.get(CONFIG_MAPS, name, "owned"), lambda found: found is None, what="it is collected", within=90
    )
    delete_namespace(objects, name)


@pytest.fixture
def namespace(new_namespace: Callable[[], str], objects: Objects) -> Iterator[str]:
    """A new namespace, deleted afterwards without waiting."""
    name = new_namespace()
    yield name
    delete_namespace(objects, name)


@pytest.fixture
def world(objects: Objects, namespace: str) -> World:
    """The World of the test's own namespace."""
    return World(objects, namespace)


@pytest.fixture
def kubelet(objects: Objects, namespace: str) -> Iterator[StandInKubelet]:
    """The kubelet for the pods of the test's namespace."""
    stand_in = StandInKubelet(objects, namespace)
    yield stand_in
    stand_in.close()


@pytest.fixture(scope="session")
def kubectl(control_plane, admin) -> Callable[..., subprocess.CompletedProcess[str]]:  # noqa: ARG001 - wants the CRD
    """Runs kubectl as an administrator; the caller checks the exit status."""
    from local_kubernetes.binaries import hyperkube

    program = [str(hyperkube()), "kubectl", "--kubeconfig", str(control_plane.kubeconfig)]

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.fixture(scope="session")
def audit(control_plane, objects: Objects) -> AuditLog:
    """The API server's audit log."""
    return AuditLog(Path(control_plane.audit_log), objects)


@pytest.fixture(scope="session")
def operator_kubeconfig(control_plane, objects: Objects) -> Path:
    """The kubeconfig of a user with exactly the operator's permissions."""
    grant_operator_rights(objects)
    return Path(control_plane.kubeconfig_for(OPERATOR_USER))


@pytest.fixture(scope="session")
def operator_process(operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """The operator of the session, not started yet."""
    process = OperatorProcess(kubeconfig=operator_kubeconfig, log=tmp_path_factory.mktemp("operator") / "operator.log")
    yield process
    process.kill()


@pytest.fixture
def operator(operator_process: OperatorProcess) -> Iterator[OperatorProcess]:
    """The running operator; tests can kill and start it, but it must not log a traceback.

    It is shared: a test that stops it, or starts it differently, costs the next test a start.
    """
    operator_process.restore()
    with no_traceback(operator_process):
        yield operator_process


@pytest.fixture(scope="module")
def shared_world(
    operator_process: OperatorProcess, objects: Objects, new_namespace: Callable[[], str]
) -> Iterator[World]:
    """One namespace for the read-only tests of a module, with the operator running."""
    operator_process.restore()
    name = new_namespace()
    yield World(objects, name)
    delete_namespace(objects, name)
