"""Admission on a real API server: which TFClusters are valid, and that the server stores them unchanged."""

from typing import Any

import pytest
from support.admission import accepted, taken
from support.manifests import TFClusterBuilder, pod_template, tfcluster
from support.objects import TFCLUSTERS, Object, Objects


def worker(**fields: Any) -> TFClusterBuilder:
    return tfcluster("mnist").job("worker", **fields)


def training(**fields: Any) -> TFClusterBuilder:
    return tfcluster("mnist").job("chief").job("worker", replicas=4, **fields).job("ps", replicas=2, maxReplicas=3)


FILTERED = {"mode": "DeviceFilters", "portScope": "All"}
#: Peers as in the API of NetworkPolicies.
PEERS = [
    {"podSelector": {"matchLabels": {"app": "notebook"}}},
    {"podSelector": {}},
    {"namespaceSelector": {}, "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
]
APART = {
    "weight": 1,
    "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"team": "vision"}},
    },
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}}
#: A template that uses many corners of the schema, with every field that Kubernetes would default.
RICH_TEMPLATE: Object = {
    "metadata": {"labels": {"team": "vision", "app.kubernetes.io/part-of": "search"}, "annotations": {"a.b/c": "d"}},
    "spec": {
        "serviceAccountName": "trainer",
        "automountServiceAccountToken": True,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 30,
        "hostNetwork": False,
        "nodeSelector": {"gpu": "h100"},
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [APART]}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
        "initContainers": [{"name": "fetch", "image": "fetch:1", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "tensorflow",
                "image": "train:1",
                "command": ["python", "train.py"],
                "ports": [{"containerPort": 2222}, {"containerPort": 6006, "name": "board"}],
                "env": [
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
                ],
                "resources": {
                    "limits": {"nvidia.com/gpu": 8, "memory": "64Gi", "cpu": "7500m"},
                    "requests": {"cpu": 4, "memory": "1.5e9"},
                },
                "readinessProbe": {"tcpSocket": {"port": 2222}, "periodSeconds": 1},
                "livenessProbe": {"httpGet": {"port": "board", "path": "/"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
            }
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "mnist"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        ],
    },
}

ALMOST_OUR_PATHS = ("/etc/tfclusters", "/opt/tfcluster", "/opt/tfcluster-resolver2", "/etc", "etc/tfcluster")
ALMOST_OURS = pod_template(
    env=[{"name": "TFCLUSTER_JOBS", "value": "1"}, {"name": "TF_CONFIG", "value": "{}"}],
    volumeMounts=[{"name": "data", "mountPath": path} for path in ALMOST_OUR_PATHS],
    spec={"volumes": [{"name": "tfcluster-views", "emptyDir": {}}]},
)
LARGEST = {
    "name": "tensorflow",
    "image": "train:1",
    "env": [{"name": f"E{number}"} for number in range(1024)],
    "volumeMounts": [{"name": "d", "mountPath": f"/d/{number}"} for number in range(256)],
}
FULL = pod_template(
    spec={
        "containers": [*({"name": f"c{number}", "image": "train:1"} for number in range(31)), LARGEST],
        "initContainers": [{"name": f"i{number}", "image": "fetch:1"} for number in range(32)],
    }
)
FILTERS = (
    "/job:ps",
    "/job:worker/task:0",
    "/job:worker/task:3",
    "/job:ps/replica:0",
    "/job:ps/replica:0/task:2",
    "/job:ps/task:1/device:CPU:0",
    "/job:ps/replica:0/task:0/device:GPU:0",
    "/job:ps/device:GPU",
    "/job:ps/device:TPU_SYSTEM:0",
    "/job:ps/gpu:7",
    "/job:ps/cpu:0",
    "/task:3",
    "/replica:0/task:1",
    "/replica:0/device:GPU:0",
    "/device:GPU:0",
    "/gpu:1",
)


@pytest.mark.parametrize(
    "manifest",
    [
        accepted("one job with a template is enough", worker()),
        accepted("a parameter-server cluster", training()),
        accepted(
            "the design's example",
            tfcluster("mnist")
            .spec(rpcLayer="grpc", port=2222)
            .job("chief", replicas=1)
            .job(
                "worker",
                replicas=4,
                maxReplicas=16,
                filters=["/job:ps", "/job:chief"],
                task_filters={0: ["/job:ps", "/job:chief", "/job:worker/task:1"]},
            )
            .job("ps", replicas=2, filters=["/job:worker", "/job:chief"]),
        ),
        accepted("a job may have no tasks now", worker(replicas=0)),
        accepted("a job may have no tasks now and some later", worker(replicas=0, maxReplicas=1)),
        accepted("10,000 tasks", worker(replicas=10000)),
        accepted(
            "10,000 tasks over three jobs", worker(replicas=9_000).job("ps", maxReplicas=900).job("a", replicas=100)
        ),
        accepted("maxReplicas may equal replicas", worker(replicas=3, maxReplicas=3)),
        accepted("a job's name may hold an underscore and digits", tfcluster("mnist").job("parameter_server_2")),
        accepted("two underscores in a row", tfcluster("mnist").job("a__b")),
        accepted("a job's name may be one letter", tfcluster("mnist").job("w")),
        accepted("a pod's name of 63 characters", tfcluster("m" * 54).job("worker")),
        accepted("a pod's name of 63 characters at the last index", tfcluster("m" * 53).job("worker", replicas=100)),
        accepted("a cluster's name may be one letter", tfcluster("m").job("worker")),
        accepted("a cluster's name may hold digits and hyphens", tfcluster("m-2--x").job("worker")),
        accepted("16 jobs", tfcluster("mnist").spec(jobs={f"job{i}": {"template": pod_template()} for i in range(16)})),
        accepted("the highest ports", worker(port=65535).spec(port=65535)),
        accepted("isolation of each mode", worker().spec(isolation={"mode": "Cluster"})),
        accepted("isolation by the device filters, of every port", worker().spec(isolation=FILTERED)),
        accepted("no isolation", worker().spec(isolation={"mode": "None"})),
        accepted("isolation by the operator's default, and a peer", worker().spec(isolation={"allowFrom": PEERS[:1]})),
        accepted("peers in every form", worker().spec(isolation={"mode": "Cluster", "allowFrom": PEERS})),
        accepted("a cluster domain", worker().spec(clusterDomain="cluster.local")),
        accepted("a cluster domain of one label", worker().spec(clusterDomain="k8s")),
        accepted("a cluster that begins suspended", worker().spec(suspend=True)),
        accepted("another rpc layer", worker().spec(rpcLayer="grpc+verbs")),
        accepted("hostNetwork said to be off", worker(template=pod_template(spec={"hostNetwork": False}))),
        accepted(
            "recommended labels that the operator does not set",
            worker(template=pod_template(metadata={"labels": {"app.kubernetes.io/version": "1"}})),
        ),
        accepted(
            "labels of other domains that end like ours",
            worker(template=pod_template(metadata={"labels": {"not-tfcluster.dev/x": "1"}})),
        ),
        accepted("labels on the cluster itself", worker().metadata(labels={"app.kubernetes.io/name": "anything"})),
        accepted("a template that uses many corners of the schema", worker(template=RICH_TEMPLATE)),
        accepted("paths and variables that begin like the operator's", worker(template=ALMOST_OURS)),
        accepted("as many containers, variables and mounts as there may be", worker(template=FULL)),
        accepted("filters of an evaluator", tfcluster("m").job("worker").job("evaluator", filters=["/job:worker"])),
        accepted(
            "a filter of a job whose name begins like evaluator",
            tfcluster("m").job("worker", filters=["/job:evaluators/task:0"]).job("evaluators"),
        ),
        accepted("16 filters", training(filters=FILTERS)),
        accepted("filters of single tasks, in any order of indices", training(task_filters={3: FILTERS, 0: FILTERS})),
        accepted("an empty list of filters", training(filters=[], task_filters={1: []})),
        accepted("a filter that is said twice", training(filters=["/job:ps", "/job:ps"])),
        accepted("filters of a task that exists only at maxReplicas", worker(maxReplicas=9, task_filters={8: []})),
        accepted("a filter of 64 characters", tfcluster("m").job("w" * 59, filters=[f"/job:{'w' * 59}"])),
        accepted(
            "512 tasks with 16 filters each",
            training(task_filters={}).job(
                "evaluator", replicas=512, task_filters={index: 16 * ["/job:ps/task:2"] for index in range(512)}
            ),
        ),
    ],
)
def test_accepted(objects: Objects, manifest: Object) -> None:
    assert taken(objects, manifest)["metadata"]["name"] == manifest["metadata"]["name"]


def test_stored_template_is_what_the_user_wrote(objects: Objects, namespace: str) -> None:
    objects.create(TFCLUSTERS, namespace, worker(template=RICH_TEMPLATE).build())
    stored = objects.get(TFCLUSTERS, namespace, "mnist") or {}
    assert stored["spec"]["jobs"]["worker"]["template"] == RICH_TEMPLATE


def test_defaults_of_our_fields(objects: Objects, namespace: str) -> None:
    """Only these values are stored for a cluster that does not set them; other fields are unlimited."""
    objects.create(TFCLUSTERS, namespace, worker().build())
    spec = (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"]
    template = spec["jobs"]["worker"]["template"]
    assert spec == {
        "rpcLayer": "grpc",
        "port": 2222,
        "suspend": False,
        "cleanPodPolicy": "Running",
        "failedPodsHistoryLimit": 1,
        "updateStrategy": {"type": "OnDelete"},
        "resolver": {"tfConfig": "None"},
        "isolation": {"mode": "Cluster", "portScope": "Task"},
        "jobs": {
            "worker": {
                "replicas": 1,
                "restartPolicy": "OnFailure",
                "restartScope": "Task",
                "drainTimeoutSeconds": 0,
                "template": template,
            }
        },
    }


def test_new_cluster_is_not_observed_yet(objects: Objects, namespace: str) -> None:
    objects.create(TFCLUSTERS, namespace, worker().build() | {"status": {"observedGeneration": 1, "readyTasks": 1}})
    stored = objects.get(TFCLUSTERS, namespace, "mnist") or {}
    assert stored["status"] == {"observedGeneration": 0}
    assert stored["metadata"]["generation"] == 1


def test_generated_name_is_checked_as_a_given_one(objects: Objects) -> None:
    manifest = worker().build()
    manifest["metadata"] = {"generateName": "mnist-"}
    assert taken(objects, manifest)["metadata"]["name"].startswith("mnist-")
