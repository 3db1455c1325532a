"""A release next to running clusters: helm installs, upgrades and uninstalls without an effect on tasks.

The release watches only its own namespace, which enforces the restricted Pod Security Standard. The operator of all
namespaces is removed in the meantime: otherwise the author of the pods would be ambiguous.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_world import LiveWorld
from operator_release import OperatorRelease
from support.objects import CRDS, NAMESPACES, Object, Objects
from support.waiting import eventually
from support.world import task_names
from task_programs import HARMLESS, LISTEN, pod_template

pytestmark = pytest.mark.alone

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "charts" / "tfcluster-operator"
CRD = "tfclusters.tfcluster.dev"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
RELEASE = "life"
#: The chart's two operators are ready: the leader and its standby.
BOTH = [True, True]
#: A user that the image does not define, with the group 0, as on OpenShift.
OTHER_USER = 1000690000

Helm = Callable[..., str]


@pytest.fixture
def helm(kubeconfig: Path, namespace: str) -> Helm:
    """Runs helm in the test's namespace; it must succeed."""
    ours = ROOT / ".local" / "bin" / "helm"
    program = str(ours) if ours.exists() else shutil.which("helm")
    if program is None:
        pytest.fail("there is no helm: run `make cluster`, or put one on the PATH", pytrace=False)

    def run(*arguments: str | Path) -> str:
        answer = subprocess.run(
            [program, *arguments, "--kubeconfig", str(kubeconfig), "--namespace", namespace],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return run


@pytest.fixture
def upgrade(helm: Helm, operator_image: str) -> Iterator[Callable[..., None]]:
    """Installs or upgrades the release, and waits until both operators are ready."""
    repository, _, tag = operator_image.rpartition(":")

    def run(verb: str, *settings: str) -> None:
        given = ",".join((f"image.repository={repository},image.tag={tag}", *settings))
        helm(verb, RELEASE, CHART, "--set", given, "--wait", "--timeout", "3m")

    yield run
    # Some objects are outside of the namespace.
    helm("uninstall", RELEASE, "--ignore-not-found")


@pytest.fixture
def alone(namespace: str, objects: Objects, operator_release: OperatorRelease) -> Iterator[OperatorRelease]:
    """The release in the test's namespace, installed while the cluster-wide operator is removed."""
    objects.patch(NAMESPACES, "", namespace, {"metadata": {"labels": RESTRICTED}})
    with operator_release.absent():
        yield OperatorRelease(objects, namespace)


def launch(world: LiveWorld, name: str, *, workers: int = 2) -> Object:
    template = pod_template(world.image, LISTEN, securityContext=HARMLESS)
    return world.launch(name, {"chief": {"template": template}, "worker": {"replicas": workers, "template": template}})


def tasks(world: LiveWorld, cluster: str = "c") -> dict[str, Object]:
    """Return the pods of a cluster, without the operator's and without the fields that their kubelet writes."""
    return world.declared(*(name for name in world.pods() if name.startswith(f"{cluster}-")))


def user_of(kubectl: Callable[..., subprocess.CompletedProcess[str]], namespace: str, pod: str) -> str:
    command = ("python3", "-c", "import os; print(os.getuid())")
    return kubectl("-n", namespace, "exec", pod, "--", *command).stdout.strip()


def test_life_of_a_release(alone, upgrade, helm, kubectl, world, objects):  # noqa: PLR0917 - fixtures, by name
    """The installed operator creates a cluster's pods; an upgrade and an uninstallation of the operator keep them."""
    names = task_names("c", chief=1, worker=2)

    upgrade("install")
    assert objects.get(CRDS, "", CRD) is not None
    assert list(alone.readiness().values()) == BOTH

    launch(world, "c")
    world.await_ready("c")
    before = tasks(world)
    assert sorted(before) == sorted(names)
    assert world.call("c-chief-0", [world.address("c-worker-1")]) == {world.address("c-worker-1"): "c-worker-1"}

    first = set(alone.pods())
    upgrade("upgrade", "logLevel=debug", f"podSecurityContext.runAsUser={OTHER_USER},podSecurityContext.runAsGroup=0")
    eventually(alone.readiness, lambda ready: list(ready.values()) == BOTH, what="both operators are ready")
    assert not first & set(alone.pods())
    for pod in alone.pods():
        assert user_of(kubectl, world.namespace, pod) == str(OTHER_USER)
    launch(world, "after-upgrade", workers=0)
    world.await_ready("after-upgrade")
    assert tasks(world) == before

    definition = objects.get(CRDS, "", CRD)["metadata"]["uid"]
    helm("uninstall", RELEASE, "--wait")
    eventually(alone.pods, lambda pods: not pods, what="the operator is gone")
    assert objects.get(CRDS, "", CRD)["metadata"]["uid"] == definition
    assert world.cluster("c")["metadata"].get("deletionTimestamp") is None
    assert tasks(world) == before
    assert world.call("c-worker-0", map(world.address, names)) == {world.address(name): name for name in names}
