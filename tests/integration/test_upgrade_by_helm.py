"""The documented upgrade from an older chart and operator to the current ones, and back, with a running cluster.

Each operator is a process with the arguments and the ServiceAccount's permissions of its release's Deployment.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from support import older_version
from support.audit import AuditLog, Request
from support.guide import snippets
from support.lives import await_another_pass, await_asked_to_go, launch_running, uids_of
from support.objects import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Kind, Object, Objects
from support.operator_process import OperatorProcess
from support.pods import StandInKubelet
from support.waiting import eventually
from support.world import World, task_names

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "operate" / "upgrading.md"
DEPLOYMENTS = Kind("apps/v1", "deployments")
NAMESPACE, RELEASE_NAMESPACE, NAME = "upgrade", "tfcluster-system", "tfcluster-tfcluster-operator"
USER = f"system:serviceaccount:{RELEASE_NAMESPACE}:{NAME}"
JOBS = {"chief": {}, "worker": {"replicas": 3, "deviceFilters": ["/job:ps"]}, "ps": {"replicas": 2}}


@dataclass(frozen=True)
class Stage:
    """A control plane with a release of the older chart, and its operator."""

    world: World
    kubelet: StandInKubelet
    audit: AuditLog
    older: OperatorProcess
    newer: OperatorProcess
    environment: dict[str, str]

    def run(self, *commands: str) -> None:
        """Run shell commands in the repository's root; each must succeed."""
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    def follow(self, part: str) -> None:
        """Run the guide's commands, without waiting for the operator's pods: no node runs them."""
        found = [s.commands() for s in snippets(GUIDE) if s.place == part]
        assert found, f"the guide has no snippet {part}"
        self.run(*(command.replace(" --wait", "") for commands in found for command, _ in commands))

    def start(self, operator: OperatorProcess) -> None:
        """Start an operator with the arguments of the release's Deployment."""
        arguments = self.arguments()
        port = arguments.index("--health-port")
        operator.start(arguments=[*arguments[:port], *arguments[port + 2 :]])

    def arguments(self) -> list[str]:
        """Return the arguments of the operator in the release's Deployment."""
        deployment = self.world.objects.get(DEPLOYMENTS, RELEASE_NAMESPACE, NAME)
        assert deployment is not None
        return deployment["spec"]["template"]["spec"]["containers"][0]["args"]

    def writes(self, position: int) -> list[Request]:
        """Return the operator's writes since a position, except events and the status of clusters."""
        made = self.audit.writes(position, user=USER, namespace=NAMESPACE)
        return [w for w in made if w.resource != "events" and w.target != "tfclusters/status"]

    def quiet(self) -> int:
        return self.audit.await_quiet(USER, namespace=NAMESPACE)

    def takes_over(self, operator: OperatorProcess, position: int, pods: dict[str, dict[str, str]]) -> None:
        """Start an operator, and assert that it changes nothing.

        Args:
            operator: the older or the newer one.
            position: of the audit log, since when nothing else must have been written.
            pods: the UIDs of the pods that must stay, by cluster and name.
        """
        self.start(operator)
        for cluster in pods:
            await_another_pass(self.world, cluster)
        self.quiet()
        assert [(w.verb, w.target, w.name) for w in self.writes(position)] == []
        assert {cluster: uids_of(self.world, cluster) for cluster in pods} == pods


@pytest.fixture(scope="session")
def helm() -> Path:
    from local_kubernetes import binaries

    return binaries.helm()


@pytest.fixture
def stage(tmp_path: Path, helm: Path) -> Iterator[Stage]:
    """The older release, with a running operator."""
    from local_kubernetes.binaries import hyperkube
    from local_kubernetes.control_plane import start

    old = older_version.unpack(tmp_path, "operator", "resolver", "crds", "charts/tfcluster-operator")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(hyperkube())
    (tools / "helm").symlink_to(helm)
    with start(tmp_path / "server") as plane:
        environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(plane.kubeconfig),
            **{f"HELM_{kind}_HOME": str(tmp_path / "helm" / kind) for kind in ("CACHE", "CONFIG", "DATA")},
        }
        configuration = client.Configuration()
        config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
        objects = Objects(client.ApiClient(configuration))
        objects.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        eventually(lambda: objects.get(SERVICE_ACCOUNTS, NAMESPACE, "default"), what="it can hold pods")
        kubeconfig = tmp_path / "service-account"
        older = OperatorProcess(kubeconfig=kubeconfig, log=tmp_path / "older.log", sources=old)
        newer = OperatorProcess(kubeconfig=kubeconfig, log=tmp_path / "newer.log")
        world = World(objects, NAMESPACE)
        kubelet, audit = StandInKubelet(objects, NAMESPACE), AuditLog(Path(plane.audit_log), objects)
        stage = Stage(world, kubelet, audit, older, newer, environment)
        stage.run(
            f"helm install tfcluster {old}/charts/tfcluster-operator --namespace {RELEASE_NAMESPACE} --create-namespace"
            " --set clusterWide=true,logLevel=debug"
        )
        kubeconfig.write_text(json.dumps(as_service_account(objects, plane.kubeconfig)))
        plane.restart_apiserver()  # admission discovers new kinds of owners every 30 s, and at the start
        eventually(lambda: knows_the_kind(objects), what="admission knows the kind of the owners")
        stage.start(older)
        try:
            yield stage
        finally:
            older.kill()
            newer.kill()


def knows_the_kind(objects: Objects) -> bool:
    """Return whether the API server allows TFClusters as owners."""
    owner = {"apiVersion": "tfcluster.dev/v1alpha1", "kind": "TFCluster", "name": "any", "uid": "any"}
    metadata = {"name": "owned", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
    try:
        objects.request("POST", f"{CONFIG_MAPS.path(NAMESPACE)}?dryRun=All", {"metadata": metadata})
    except ApiException as error:
        if error.status != 403:
            raise
        return False
    return True


def as_service_account(objects: Objects, administrator: Path) -> Object:
    """Write a kubeconfig with a token of the release's ServiceAccount, as its pods have."""
    path = SERVICE_ACCOUNTS.path(RELEASE_NAMESPACE, NAME, "token")
    token = objects.request("POST", path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    kubeconfig = json.loads(administrator.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    return kubeconfig


def test_upgrade_by_helm_and_back(stage):
    """With the documented steps no pod is replaced and nothing is written, in both directions; the values stay."""
    world, kubelet = stage.world, stage.kubelet
    position = stage.audit.position()
    pods = launch_running(world, kubelet, "c", JOBS)
    world.await_condition("c", "Ready", status="True")
    launch_running(world, kubelet, "done", {"chief": {}, "worker": {}})
    kubelet.succeed("done-chief-0")
    world.await_ended("done", "Succeeded")
    await_asked_to_go(world, "done-worker-0")
    kubelet.stop("done-worker-0")
    ended = uids_of(world, "done")
    assert list(ended) == ["done-chief-0"]
    stage.older.stop()
    position = stage.quiet()

    stage.follow("run")
    stage.takes_over(stage.newer, position, {"c": pods, "done": ended})
    assert "debug" in stage.arguments(), "the release's values stay"

    # The operator works: a deleted object is re-created.
    world.delete(PODS, "c-worker-1")
    kubelet.stop("c-worker-1")
    world.await_replaced("c-worker-1", pods["c-worker-1"])
    kubelet.run("c-worker-1")
    world.await_condition("c", "Ready", status="True")
    eventually(lambda: world.chief_knows_the_pods("c"), what="the chief is told of the new pod")
    stage.quiet()
    pods = uids_of(world, "c")
    stage.newer.stop()
    position = stage.quiet()

    stage.follow("back")
    stage.takes_over(stage.older, position, {"c": pods, "done": ended})
    assert world.condition("done", "Succeeded")["status"] == "True"
    assert sorted(pods) == sorted(task_names("c", chief=1, worker=3, ps=2))
