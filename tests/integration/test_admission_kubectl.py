"""What a user meets at the command line: plain apply, explain, get and scale, with a real kubectl and API server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from kubernetes.client.exceptions import ApiException
from support.admission import message_of
from support.manifests import pod_template, tfcluster
from support.objects import CRDS, TFCLUSTERS, Object, Objects

DEFINITION = Path(__file__).resolve().parents[2] / "crds" / "tfcluster.yaml"
NAME = "tfclusters.tfcluster.dev"
#: What client-side apply adds to an object: the whole of it, as one annotation.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: All annotations of an object together, by Kubernetes' validation.
ANNOTATIONS_LIMIT = 262_144

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def told(result: subprocess.CompletedProcess[str]) -> str:
    """Give what kubectl printed, after it succeeded."""
    assert result.returncode == 0, result.stderr
    return result.stdout


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """Give what kubectl complained of, after it failed."""
    assert result.returncode != 0, result.stdout
    return result.stderr


def words(text: str) -> str:
    """Undo kubectl's line breaks."""
    return " ".join(text.split())


def test_plain_apply_of_the_definition_works_again_and_again(kubectl: Kubectl, objects: Objects) -> None:
    """Client-side apply takes the definition, and what it notes of it is below the limit of annotations."""
    told(kubectl("apply", "-f", str(DEFINITION)))
    told(kubectl("apply", "-f", str(DEFINITION)))

    noted = (objects.get(CRDS, "", NAME) or {})["metadata"]["annotations"][LAST_APPLIED]
    assert json.loads(noted)["spec"] == yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))["spec"]
    assert len(noted.encode()) < ANNOTATIONS_LIMIT - 20_000


def test_definition_is_structural_and_has_no_other_complaint(objects: Objects) -> None:
    """The server reports no condition against the definition: its schema is structural and its names are free."""
    conditions = (objects.get(CRDS, "", NAME) or {})["status"]["conditions"]

    assert {c["type"]: c["status"] for c in conditions} == {"NamesAccepted": "True", "Established": "True"}


def test_vendored_schemas_are_the_servers_own(control_plane, tmp_path: Path) -> None:
    """Fetching Kubernetes' schemas anew changes neither them nor the definition."""
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


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("tfcluster", "A TensorFlow cluster: named jobs of numbered tasks."),
        ("tfcluster.spec.suspend", "true deletes its pods and keeps its Service and ConfigMaps"),
        ("tfcluster.spec.jobs", "How many tasks the job has. Their indices count from 0."),
        ("tfcluster.spec.jobs", "What every task of the job sees of the cluster besides itself"),
        ("tfcluster.spec", "If it is left out, there is no deadline."),
        ("tfcluster.spec.successPolicy", "If it is left out: job chief if there is one, else job worker"),
        ("tfcluster.spec.successPolicy.tasks", "Any: one task of any of them is enough."),
        ("tfcluster.spec.backoffLimit", "are disruptions and never count. If it is left out, there is no limit."),
        ("tfcluster.spec.activeDeadlineSeconds", "with reason DeadlineExceeded"),
        ("tfcluster.spec.cleanPodPolicy", "Running: those that still run, so that the logs of the others can be read."),
        ("tfcluster.spec.ttlSecondsAfterFinished", "How many seconds after it has finished the TFCluster is deleted"),
        ("tfcluster.spec.updateStrategy.type", "OnDelete: each pod is replaced when somebody deletes it."),
        ("tfcluster.spec.updateStrategy.rollingUpdate", "A percentage is rounded down, but is at least one task."),
        ("tfcluster.spec.forceDeleteAfterSeconds", "Otherwise two pods of one task may run at once."),
        ("tfcluster.spec.managedBy", "as a domain-prefixed path such as example.com/queue"),
        ("tfcluster.spec.resolver.delivery", "the operator delivers the resolver in a ConfigMap that the pods mount"),
        (
            "tfcluster.spec.jobs",
            "autoscalers) serves one job of every TFCluster: worker, unless the installation has chosen another.",
        ),
        ("tfcluster.spec.jobs.restartPolicy", "128 and above (a signal) restarts the task"),
        ("tfcluster.spec.jobs.restartScope", "MultiWorkerMirroredStrategy needs Cluster"),
        ("tfcluster.spec.jobs.startAfter", "must all be ready before the pods of this job are created"),
        ("tfcluster.spec.jobs.drainTimeoutSeconds", "deleting the pods of the tasks that go"),
        ("tfcluster.spec.jobs.template.spec.containers.image", "Container image name."),
        ("tfcluster.spec.jobs.template.spec.containers.readinessProbe.tcpSocket.port", "Number or name of the port"),
        ("tfc.status.lastRestart", "The exit code of its program, if it is known."),
        ("tfc.status.internal", "It may change at any time, so do not read it."),
        ("tfc.status.conditions", "Failed: the cluster has finished otherwise. At most one of these two is True"),
        ("tfc.status.conditions", "Stalled: the cluster makes no progress until somebody acts"),
        ("tfc.status.conditions", "UpToDate: every pod is made from the present template."),
        ("tfcluster.spec.jobs.maxReplicas", "TensorFlow keeps the first filters that it gets"),
        ("tfcluster.spec.jobs.template.spec", "kubectl explain pod.spec"),
        ("tfc.status.conditions", "MembershipPublished: every running pod has its newest view."),
    ],
)
def test_explain_shows_our_descriptions(kubectl: Kubectl, path: str, says: str) -> None:
    """``kubectl explain`` says in our words what a field is for."""
    assert says in words(told(kubectl("explain", path)))


def test_typo_in_a_template_is_refused_with_its_path(kubectl: Kubectl, namespace: str) -> None:
    """``kubectl apply`` of a template with a typo fails and names the place, instead of dropping the field."""
    template = pod_template(resources={"limit": {"nvidia.com/gpu": 1}})
    manifest = tfcluster("mnist").job("worker", template=template).build()

    complaint = refused(kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(manifest)))

    assert 'unknown field "spec.jobs.worker.template.spec.containers[0].resources.limit"' in complaint


def test_plain_apply_creates_and_edits_a_cluster(kubectl: Kubectl, namespace: str) -> None:
    """``kubectl apply`` creates, edits, and says when nothing changed."""

    def apply(replicas: int) -> str:
        manifest = tfcluster("mnist").job("worker", replicas=replicas).build()
        return told(kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(manifest)))

    assert apply(1) == "tfcluster.tfcluster.dev/mnist created\n"
    assert apply(2) == "tfcluster.tfcluster.dev/mnist configured\n"
    assert apply(2) == "tfcluster.tfcluster.dev/mnist unchanged\n"


def status(ready: str, *, reason: str, replicas: int) -> Object:
    """A status as the operator writes it."""
    return {
        "observedGeneration": 1,
        "epoch": 7,
        "startTime": "2026-01-01T00:00:00.125Z",
        "completionTime": "2026-01-01T01:00:00.250Z",
        "ready": ready,
        "accelerators": "12 nvidia.com/gpu",
        "restarts": 5,
        "lastRestart": {
            "task": "worker-3",
            "reason": "OOMKilled",
            "exitCode": 137,
            "message": "it used more memory than its limit",
            "time": "2026-01-01T00:30:00.500Z",
        },
        "jobs": {
            "worker": {
                "desired": replicas,
                "created": replicas,
                "ready": replicas - 1,
                "succeeded": 0,
                "failed": 0,
                "restarts": 5,
                "replaced": 2,
                "accelerators": {"nvidia.com/gpu": 12},
                "selector": "tfcluster.dev/cluster=mnist,tfcluster.dev/job=worker",
            }
        },
        "internal": {
            "ofANewerOperator": [1, {"two": 2}],
            "jobs": {
                "worker": {
                    "incarnation": 1,
                    "restartsInRow": 3,
                    "restartTime": "2026-01-01T00:30:04.750Z",
                    "completedIndexes": "0-3,5",
                    "startedIndexes": "0-7",
                    "countedPods": ["0d7a5d8e-7c1f-4f0e-9f55-2b6a3a6f1c11"],
                    "failing": {"2": {"inRow": 4, "retryTime": "2026-01-01T00:30:09.250Z", "newer": True}},
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


def test_columns_tell_the_state_of_a_cluster(kubectl: Kubectl, objects: Objects, namespace: str) -> None:
    """``kubectl get tfc`` has the columns Ready, Reason, Restarts and Age; -o wide adds four more."""
    objects.create(TFCLUSTERS, namespace, tfcluster("mnist").job("worker", replicas=4).build())
    since = (datetime.now(UTC) - timedelta(days=3)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    written = status("3/4", reason="TasksNotReady", replicas=4) | {"waitingSince": since}
    objects.patch(TFCLUSTERS, namespace, "mnist", {"status": written}, subresource="status")

    head, row = told(kubectl("get", "tfc", "-n", namespace)).splitlines()
    wide_head, wide_row = told(kubectl("get", "tfc", "-o", "wide", "-n", namespace)).splitlines()

    assert head.split() == ["NAME", "READY", "REASON", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["mnist", "3/4", "TasksNotReady", "5"]
    assert wide_head.split() == [*head.split(), "ACCELERATORS", "QUEUE", "WAITING", "EPOCH"]
    assert wide_row.split()[5:] == ["12", "nvidia.com/gpu", "3d", "7"]


def test_a_deletion_of_all_spares_the_cluster(kubectl: Kubectl, objects: Objects, namespace: str) -> None:
    """``kubectl delete all --all`` deletes no TFCluster; the category has the kind's own name."""
    objects.create(TFCLUSTERS, namespace, tfcluster("mnist").job("worker").build())

    assert "mnist" not in told(kubectl("get", "all", "-n", namespace, "-o", "name"))
    assert told(kubectl("get", "tfcluster", "-n", namespace, "-o", "name")) == "tfcluster.tfcluster.dev/mnist\n"


def test_status_is_stored_whole_and_apart_from_the_spec(objects: Objects, namespace: str) -> None:
    """Writing the status drops none of its fields, raises no generation and changes no spec."""
    created = objects.create(TFCLUSTERS, namespace, tfcluster("mnist").job("worker", replicas=4).build())
    written = status("3/4", reason="TasksNotReady", replicas=4)
    change = {"status": written, "spec": {"suspend": True}}

    objects.patch(TFCLUSTERS, namespace, "mnist", change, subresource="status")

    stored = objects.get(TFCLUSTERS, namespace, "mnist") or {}
    assert stored["status"] == written
    assert stored["spec"] == created["spec"]
    assert stored["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"startTime": "yesterday"}, "status.startTime"),
        ({"completionTime": 1767225600}, "status.completionTime"),
        ({"restarts": "5"}, "status.restarts"),
        ({"lastRestart": {"time": "12:00"}}, "status.lastRestart.time"),
        ({"accelerators": {"nvidia.com/gpu": 4}}, "status.accelerators"),
        ({"internal": {"jobs": {"worker": {"restartTime": "soon"}}}}, "status.internal.jobs.worker.restartTime"),
        ({"internal": {"jobs": {"worker": {"completedIndexes": [0]}}}}, "status.internal.jobs.worker.completedIndexes"),
        ({"internal": {"jobs": {"worker": {"countedPods": "0d7a5d8e"}}}}, "status.internal.jobs.worker.countedPods"),
    ],
)
def test_status_of_a_wrong_type_is_refused(objects: Objects, namespace: str, wrong: Object, path: str) -> None:
    """A program that misspells a count or a time in the status is told, instead of being misread later."""
    objects.create(TFCLUSTERS, namespace, tfcluster("mnist").job("worker").build())

    with pytest.raises(ApiException) as caught:
        objects.patch(TFCLUSTERS, namespace, "mnist", {"status": wrong}, subresource="status")

    assert path in message_of(caught.value)


def test_scale_changes_the_workers_and_reports_them(kubectl: Kubectl, objects: Objects, namespace: str) -> None:
    """``kubectl scale`` sets the replicas of job worker; /scale reports how many were created and their selector."""
    objects.create(TFCLUSTERS, namespace, tfcluster("mnist").job("worker", replicas=2, maxReplicas=5).build())
    written = {"status": status("1/2", reason="TasksNotReady", replicas=2)}
    objects.patch(TFCLUSTERS, namespace, "mnist", written, subresource="status")

    told(kubectl("scale", "tfcluster/mnist", "--replicas=5", "-n", namespace))

    scale = objects.get(TFCLUSTERS, namespace, "mnist", "scale") or {}
    cluster = objects.get(TFCLUSTERS, namespace, "mnist") or {}
    assert cluster["spec"]["jobs"]["worker"]["replicas"] == 5
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 2, "selector": "tfcluster.dev/cluster=mnist,tfcluster.dev/job=worker"}


@pytest.mark.parametrize(
    ("replicas", "complaint"),
    [
        (6, "is 5, below replicas, which is 6: raise maxReplicas or lower replicas"),
        (10_001, "less than or equal to 10000"),
    ],
)
def test_scale_beyond_the_bounds_is_refused(
    kubectl: Kubectl, objects: Objects, namespace: str, replicas: int, complaint: str
) -> None:
    """``kubectl scale`` is held to the rules of the spec, and the cluster stays as it was."""
    objects.create(TFCLUSTERS, namespace, tfcluster("mnist").job("worker", replicas=2, maxReplicas=5).build())

    told_why = refused(kubectl("scale", "tfcluster/mnist", f"--replicas={replicas}", "-n", namespace))

    assert complaint in told_why
    assert (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"]["jobs"]["worker"]["replicas"] == 2


def test_scale_down_below_a_filter_is_refused(kubectl: Kubectl, objects: Objects, namespace: str) -> None:
    """Without maxReplicas, workers that a filter names cannot be scaled away; with it they can."""
    builder = tfcluster("mnist").job("ps", filters=["/job:worker/task:2"])
    objects.create(TFCLUSTERS, namespace, builder.job("worker", replicas=3).build())

    told_why = refused(kubectl("scale", "tfcluster/mnist", "--replicas=2", "-n", namespace))
    objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"jobs": {"worker": {"maxReplicas": 3}}}})

    assert "names a task that the job does not have" in told_why
    told(kubectl("scale", "tfcluster/mnist", "--replicas=2", "-n", namespace))
