"""The command line: apply, explain, get and scale, with a real kubectl and API server."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from support.manifests import tfcluster
from support.objects import CRDS, TFCLUSTERS, Object, Objects

DEFINITION = Path(__file__).resolve().parents[2] / "crds" / "tfcluster.yaml"
NAME = "tfclusters.tfcluster.dev"
#: Client-side apply adds the whole object as one annotation.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: The maximal size of all annotations of an object, from Kubernetes' validation.
ANNOTATIONS_LIMIT = 262_144

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def told(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode != 0, result.stdout
    return result.stderr


def test_plain_apply_of_the_crd_is_repeatable(kubectl: Kubectl, objects: Objects) -> None:
    told(kubectl("apply", "-f", str(DEFINITION)))
    told(kubectl("apply", "-f", str(DEFINITION)))
    noted = (objects.get(CRDS, "", NAME) or {})["metadata"]["annotations"][LAST_APPLIED]
    assert json.loads(noted)["spec"] == yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))["spec"]
    assert len(noted.encode()) < ANNOTATIONS_LIMIT - 20_000


def test_crd_is_structural_and_its_names_are_accepted(objects: Objects) -> None:
    conditions = (objects.get(CRDS, "", NAME) or {})["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions} == {"NamesAccepted": "True", "Established": "True"}


def test_vendored_schemas_are_the_servers_own(control_plane, tmp_path: Path) -> None:
    folder = DEFINITION.parent
    copy = shutil.copytree(folder, tmp_path / "crds")
    told(
        subprocess.run(
            [sys.executable, str(copy / "generate.py"), "--refresh", str(control_plane.kubeconfig)],
            capture_output=True,
            text=True,
            check=False,
        )
    )
    for name in ("sources/kubernetes.json", "tfcluster.yaml"):
        assert (copy / name).read_bytes() == (folder / name).read_bytes()


def status(ready: int, *, reason: str, replicas: int) -> Object:
    return {
        "observedGeneration": 1,
        "epoch": 7,
        "startTime": "2026-01-01T00:00:00.125Z",
        "completionTime": "2026-01-01T01:00:00.250Z",
        "tasks": replicas,
        "readyTasks": ready,
        "accelerators": 12,
        "restarts": 5,
        "lastRestart": {
            "task": "worker-3",
            "reason": "OOMKilled",
            "exitCode": 137,
            "message": "it used more memory than its limit",
            "finishedAt": "2026-01-01T00:30:00.500Z",
        },
        "jobs": {
            "worker": {
                "replicas": replicas,
                "created": replicas,
                "ready": replicas - 1,
                "succeeded": 0,
                "failed": 0,
                "restarts": 5,
                "disruptions": 2,
                "accelerators": {"nvidia.com/gpu": 12},
                "selector": "tfcluster.dev/cluster=mnist,tfcluster.dev/job=worker",
            }
        },
        "internal": {
            "ofANewerOperator": [1, {"two": 2}],
            "jobs": {
                "worker": {
                    "incarnation": 1,
                    "in_row": 3,
                    "restart_at": 1767227404.75,
                    "completed": "0-3,5",
                    "started": "0-7",
                    "counted": ["0d7a5d8e-7c1f-4f0e-9f55-2b6a3a6f1c11"],
                    "failing": {"2": {"in_row": 4, "retry_at": 1767227409.25, "newer": True}},
                    "newer": "too",
                }
            },
        },
        "conditions": [
            {
                "type": kind,
                "status": "False",
                "reason": reason,
                "message": f"{ready} tasks are ready",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind in ("Suspended", "Ready")
        ],
    }


def test_status_is_stored_whole_and_shown_in_columns(kubectl: Kubectl, objects: Objects, namespace: str) -> None:
    # Managed by another controller, so that no operator writes the status in between.
    body = tfcluster("mnist").job("worker", replicas=4).spec(managedBy="example.test/other").build()
    created = objects.create(TFCLUSTERS, namespace, body)
    since = (datetime.now(UTC) - timedelta(days=3)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    written = status(3, reason="TasksNotReady", replicas=4) | {"waitingSince": since}
    change = {"status": written, "spec": {"suspend": True}}
    objects.patch(TFCLUSTERS, namespace, "mnist", change, subresource="status")
    stored = objects.get(TFCLUSTERS, namespace, "mnist") or {}
    assert (stored["status"], stored["spec"], stored["metadata"]["generation"]) == (written, created["spec"], 1)
    head, row = told(kubectl("get", "tfc", "-n", namespace)).splitlines()
    wide_head, wide_row = told(kubectl("get", "tfc", "-o", "wide", "-n", namespace)).splitlines()
    assert head.split() == ["NAME", "TASKS", "READY", "REASON", "RESTARTS", "AGE"]
    assert row.split()[:5] == ["mnist", "4", "3", "TasksNotReady", "5"]
    assert wide_head.split() == [*head.split(), "ACCELERATORS", "QUEUE", "WAITING", "EPOCH"]
    assert wide_row.split()[6:] == ["12", "3d", "7"]
    # A deletion of "all" keeps the cluster: the category has the kind's own name.
    assert "mnist" not in told(kubectl("get", "all", "-n", namespace, "-o", "name"))
    assert told(kubectl("get", "tfcluster", "-n", namespace, "-o", "name")) == "tfcluster.tfcluster.dev/mnist\n"


def test_scale_changes_the_workers_within_the_bounds(kubectl: Kubectl, objects: Objects, namespace: str) -> None:
    objects.create(TFCLUSTERS, namespace, tfcluster("mnist").job("worker", replicas=2, maxReplicas=5).build())
    written = {"status": status(1, reason="TasksNotReady", replicas=2)}
    objects.patch(TFCLUSTERS, namespace, "mnist", written, subresource="status")
    told(kubectl("scale", "tfcluster/mnist", "--replicas=5", "-n", namespace))
    for replicas, complaint in (
        (6, "is 5, below replicas, which is 6: raise maxReplicas or lower replicas"),
        (10_001, "less than or equal to 10000"),
    ):
        assert complaint in refused(kubectl("scale", "tfcluster/mnist", f"--replicas={replicas}", "-n", namespace))
    scale = objects.get(TFCLUSTERS, namespace, "mnist", "scale") or {}
    assert (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"]["jobs"]["worker"]["replicas"] == 5
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 2, "selector": "tfcluster.dev/cluster=mnist,tfcluster.dev/job=worker"}


def test_scale_down_below_a_filter_is_rejected(kubectl: Kubectl, objects: Objects, namespace: str) -> None:
    builder = tfcluster("mnist").job("ps", filters=["/job:worker/task:2"])
    objects.create(TFCLUSTERS, namespace, builder.job("worker", replicas=3).build())
    told_why = refused(kubectl("scale", "tfcluster/mnist", "--replicas=2", "-n", namespace))
    objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"jobs": {"worker": {"maxReplicas": 3}}}})
    assert "names a task that the job does not have" in told_why
    told(kubectl("scale", "tfcluster/mnist", "--replicas=2", "-n", namespace))
