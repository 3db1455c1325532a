"""Autoscaling of the job that the installation has chosen, with Kubernetes' own HorizontalPodAutoscaler and metrics.

The metrics are stored objects under the API path of metrics-server.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.control_planes import await_served
from support.objects import CRDS, JSON_PATCH, PODS, Kind, Object, Objects
from support.pods import StandInKubelet
from support.waiting import eventually
from support.world import World, task_names

from tfcluster import Client
from tfcluster.doctor.cluster import diagnose

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
AUTOSCALERS = Kind("autoscaling/v2", "horizontalpodautoscalers")
METRICS = Kind("metrics.k8s.io/v1beta1", "pods")
#: The memory request of each trainer, in MiB; the autoscaler's target is half of it.
ASKED = 1024
#: The kind that metrics-server serves; here its objects are stored.
POD_METRICS: Object = {
    "metadata": {
        "name": "pods.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, in place of metrics-server"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "PodMetrics", "listKind": "PodMetricsList", "plural": "pods", "singular": "pod"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def kubectl(own_server: ControlPlane) -> Kubectl:
    from local_kubernetes.binaries import hyperkube

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [hyperkube(), "kubectl", "--kubeconfig", own_server.kubeconfig, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="module")
def own_objects(own_objects: Objects) -> Objects:
    """The CRD is installed without helm, and /scale serves the job trainer, by the three paths of the page."""
    page = (ROOT / "docs" / "how-to" / "autoscale.md").read_text(encoding="utf-8")
    replicas, created, selector = re.findall(r"`(\.\w+\.jobs\.trainer\.\w+)`", page)
    paths = {"specReplicasPath": replicas, "statusReplicasPath": created, "labelSelectorPath": selector}
    edit = {"op": "replace", "path": "/spec/versions/0/subresources/scale", "value": paths}
    own_objects.patch(CRDS, "", "tfclusters.tfcluster.dev", [edit], content=JSON_PATCH)
    return own_objects


@pytest.fixture(scope="module")
def metrics(own_objects: Objects) -> None:
    own_objects.create(CRDS, "", POD_METRICS)
    await_served(own_objects, METRICS)


@pytest.fixture
def here(own_server: ControlPlane, home: World) -> Iterator[Client]:
    with Client.connect(kubeconfig=own_server.kubeconfig, namespace=home.namespace) as found:
        yield found


@pytest.fixture
def kubelet(own_objects: Objects, home: World) -> Iterator[StandInKubelet]:
    stand_in = StandInKubelet(own_objects, home.namespace)
    yield stand_in
    stand_in.close()


def autoscaler(cluster: str) -> Object:
    """Declare an autoscaler by memory that scales immediately in both directions."""
    memory = {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}}
    now = {"stabilizationWindowSeconds": 0}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "busy"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "tfcluster.dev/v1alpha1", "kind": "TFCluster", "name": cluster},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": memory}],
            "behavior": {"scaleUp": now, "scaleDown": now},
        },
    }


def measure(world: World, pod: str, *, mebibytes: int) -> None:
    found = world.demand(PODS, pod)["metadata"]["labels"]
    body = {
        "apiVersion": METRICS.group_version,
        "kind": "PodMetrics",
        "metadata": {"name": pod, "labels": found},
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": "15s",
        "containers": [{"name": "tensorflow", "usage": {"cpu": "1", "memory": f"{mebibytes}Mi"}}],
    }
    world.objects.delete(METRICS, world.namespace, pod)
    world.objects.create(METRICS, world.namespace, body)


def trainers() -> Object:
    resources = {"resources": {"requests": {"memory": f"{ASKED}Mi"}}}
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "image:1", **resources}]}}
    return {"maxReplicas": 3, "template": template}


@pytest.mark.usefixtures("metrics")
def test_autoscaler_scales_the_chosen_job(home: World, kubelet: StandInKubelet) -> None:
    """The HorizontalPodAutoscaler scales the job trainer up and down by its load; the workers stay unchanged."""
    home.launch("c", {"trainer": trainers(), "worker": {"replicas": 2}})
    home.await_pods(task_names("c", trainer=1, worker=2))
    kubelet.run(*task_names("c", trainer=1, worker=2))
    measure(home, "c-trainer-0", mebibytes=ASKED)
    home.objects.create(AUTOSCALERS, home.namespace, autoscaler("c"))

    def await_trainers(count: int) -> None:
        eventually(
            lambda: {job: fields["replicas"] for job, fields in home.cluster("c")["spec"]["jobs"].items()},
            lambda replicas: replicas == {"trainer": count, "worker": 2},
            what=f"the autoscaler asks for {count} trainers",
        )
        home.await_pods(task_names("c", trainer=count, worker=2))

    await_trainers(2)

    kubelet.run("c-trainer-1")
    for pod in task_names("c", trainer=2):
        measure(home, pod, mebibytes=ASKED // 8)
    # A pod on a node is deleted when its kubelet has stopped it.
    eventually(lambda: home.pods()["c-trainer-1"]["metadata"].get("deletionTimestamp"), what="one trainer is enough")
    kubelet.stop("c-trainer-1")
    await_trainers(1)


def test_scale_serves_the_chosen_job_alone(home: World, kubectl: Kubectl) -> None:
    """``kubectl scale`` sets the trainers; without that job, it and an autoscaler report what is missing."""
    home.launch("c", {"trainer": trainers(), "worker": {"replicas": 2}})
    home.launch("d", {"worker": {"replicas": 2}})
    home.objects.create(AUTOSCALERS, home.namespace, autoscaler("d"))
    home.await_pods([*task_names("c", trainer=1, worker=2), *task_names("d", worker=2)])
    scaled = kubectl("scale", "tfc/c", "--replicas=3", "-n", home.namespace)
    refused = kubectl("scale", "tfc/d", "--replicas=3", "-n", home.namespace)
    assert (scaled.returncode, scaled.stderr) == (0, "")
    assert refused.returncode == 1
    assert "spec.jobs.trainer.template: Required value" in refused.stderr
    home.await_pods([*task_names("c", trainer=3, worker=2), *task_names("d", worker=2)])

    def able() -> tuple[str, str, str] | None:
        conditions = home.demand(AUTOSCALERS, "busy").get("status", {}).get("conditions") or ()
        found = next((one for one in conditions if one["type"] == "AbleToScale"), None)
        return found and (found["status"], found["reason"], found["message"].rpartition(": ")[2])

    missing = 'the spec replicas field ".spec.jobs.trainer.replicas" does not exist'
    unable = ("False", "FailedGetScale", missing)
    eventually(able, lambda found: found == unable, what="the autoscaler says so")


def test_scale_job_does_not_make_the_crd_outdated(here: Client) -> None:
    (found,) = (check for check in diagnose(here.api, None) if check.name == "definition")
    assert (found.verdict, "as new as this client" in found.message) == ("ok", True)
