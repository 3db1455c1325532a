"""Admission on a real API server: manifests with one fault; the rejection names its path and the remedy."""

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from support.admission import refusal, refused
from support.manifests import TFClusterBuilder, pod_template, tfcluster
from support.objects import TFCLUSTERS, Object, Objects

FILTER_FORM = "write /job:J/replica:0/task:N/device:T:N"
MATCHES_EVERYTHING = "matches everything: name a job, a task or a device"
CANONICAL_NUMBER = "0 to 9999 without leading zeros"
SERVICE_NAME = "use at most 63 lower case letters, digits and hyphens"
JOB_NAME = "use lower case letters, digits and underscores"
WORKER = "spec.jobs.worker"
TEMPLATE = f"{WORKER}.template"


def worker(**fields: Any) -> TFClusterBuilder:
    return tfcluster("mnist").job("worker", **fields)


def worker_and_ps(**fields: Any) -> TFClusterBuilder:
    return worker(replicas=4, **fields).job("ps", replicas=2, maxReplicas=3).job("evaluator")


def declared(jobs: dict[str, dict[str, Any]]) -> TFClusterBuilder:
    builder = tfcluster("mnist")
    for job, fields in jobs.items():
        builder.job(job, **fields)
    return builder


def templated(**pod: Any) -> TFClusterBuilder:
    return worker(template=pod_template(spec=pod))


def containing(containers: str, **fields: Any) -> TFClusterBuilder:
    """Build a cluster whose workers' template has these fields in the first of its containers or initContainers."""
    return templated(**{containers: [{"name": "first", "image": "train:1", **fields}]})


def limited(**limits: Any) -> TFClusterBuilder:
    return worker(template=pod_template(resources={"limits": limits}))


def marked(**metadata: Any) -> TFClusterBuilder:
    return worker(template=pod_template(metadata=metadata))


def without(manifest: Object, *path: str) -> Object:
    *way, last = path
    place = manifest
    for step in way:
        place = place[step]
    del place[last]
    return manifest


def row(manifest: TFClusterBuilder | Object, path: str, remedy: str) -> Any:
    return refused(f"{path}: {remedy}", manifest, path, remedy)


def of_spec(remedy: str, **wrong: Any) -> Any:
    return row(worker().spec(**wrong), f"spec.{next(iter(wrong))}", remedy)


def of_worker(remedy: str, **wrong: Any) -> Any:
    """Build the row of a job whose first field here is invalid."""
    return row(worker(**wrong), f"{WORKER}.{next(iter(wrong))}", remedy)


def of_template(manifest: TFClusterBuilder | Object, path: str, remedy: str) -> Any:
    return row(manifest, f"{TEMPLATE}{path}", remedy)


#: As for a Service: no capitals, no dot, no underscore, a letter first, no hyphen last, at most 63 characters.
NAMES = [
    row(tfcluster(name).job("worker"), "metadata.name", SERVICE_NAME)
    for name in ("1mnist", "my.mnist", "Mnist", "my_mnist", "mnist-", "m" * 64)
]
#: Names that Kubernetes, TensorFlow's server or a hostname do not allow.
JOB_NAMES = [
    row(tfcluster("mnist").job(job), f'spec.jobs."{job}"', JOB_NAME)
    for job in ("Worker", "my-worker", "1worker", "_worker", "worker_", "worker.gpu", "", "wörker", "wor ker")
]
SHORTEN = "shorten metadata.name or the name of the job"
POD_NAMES = [
    row(tfcluster("m" * 55).job("worker"), WORKER, SHORTEN),
    # The pod that exists only at maxReplicas counts, and so does the name of the job.
    row(tfcluster("m" * 53).job("worker", replicas=1, maxReplicas=1001), WORKER, SHORTEN),
    row(tfcluster("mnist").job("w" * 57), f"spec.jobs.{'w' * 57}", SHORTEN),
]
PODS_AND_ADDRESSES = {"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}
VALUES_FOR_EXISTS = {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}
ISOLATION = [
    row(worker().spec(isolation=isolation), f"spec.isolation{path}", remedy)
    for isolation, path, remedy in [
        ({"mode": "Some"}, ".mode", 'supported values: "None", "Cluster", "DeviceFilters"'),
        ({"mode": "Cluster", "portScope": "Other"}, ".portScope", 'supported values: "Task", "All"'),
        ({"mode": "None", "allowFrom": [{"podSelector": {}}]}, ".allowFrom", "remove allowFrom, or set mode Cluster"),
        ({"allowFrom": []}, ".allowFrom", "should have at least 1 items"),
        ({"allowFrom": [{}]}, ".allowFrom[0]", "name a podSelector"),
        ({"allowFrom": [PODS_AND_ADDRESSES]}, ".allowFrom[0].ipBlock", "write the selectors as a peer of their own"),
        (
            {"allowFrom": [{"ipBlock": {"cidr": "10.0.0.1"}}]},
            ".allowFrom[0].ipBlock.cidr",
            "write a range of addresses",
        ),
        (
            {"allowFrom": [VALUES_FOR_EXISTS]},
            ".allowFrom[0].podSelector.matchExpressions[0]",
            "Exists and DoesNotExist must not have any",
        ),
    ]
]
TOO_MANY = "10001 tasks, counted by maxReplicas (by replicas where that is left out), are more than a cluster may"
MANY_JOBS = {f"job{i}": {"template": pod_template()} for i in range(17)}
COUNTS = [
    row(tfcluster("mnist"), "spec.jobs", "declare at least one job"),
    row(without(worker().build(), "spec", "jobs"), "spec.jobs", "Required value"),
    row(without(worker().build(), "spec"), "spec", "Required value"),
    row({**worker().build(), "spec": {"jobs": MANY_JOBS}}, "spec.jobs", "must have at most 16"),
    of_worker("greater than or equal to 0", replicas=-1),
    of_worker("less than or equal to 10000", replicas=10001),
    row(declared({"worker": {"replicas": 6_000}, "ps": {"replicas": 4_001}}), "spec.jobs", TOO_MANY),
    row(declared({"worker": {"maxReplicas": 6_000}, "ps": {"maxReplicas": 4_001}}), "spec.jobs", TOO_MANY),
    row(declared({"worker": {"maxReplicas": 10_000}, "ps": {"replicas": 1}}), "spec.jobs", TOO_MANY),
    row(
        declared({job: {"replicas": 10_000} for job in ("worker", "ps", "chief")}).spec(suspend=True),
        "spec.jobs",
        "30000 tasks, counted by maxReplicas",
    ),
    of_worker("must be of type integer", replicas="3"),
    of_worker("greater than or equal to 1", maxReplicas=0),
    of_worker("less than or equal to 10000", maxReplicas=10001),
    of_worker("is 2, below replicas, which is 3: raise maxReplicas or lower replicas", maxReplicas=2, replicas=3),
]
FIELDS = [
    of_spec("greater than or equal to 1", port=0),
    of_spec("less than or equal to 65535", port=65536),
    of_worker("greater than or equal to 1", port=0),
    of_worker("less than or equal to 65535", port=65536),
    of_spec("must be of type boolean", suspend="yes"),
    of_spec("such as grpc", rpcLayer=""),
    of_spec("such as grpc", rpcLayer="grpc://"),
    of_spec("such as", clusterDomain=".local"),
    of_spec("such as", clusterDomain="local."),
    of_spec("or leave the field out", clusterDomain=""),
    of_spec("unknown field", restartPolicy="Never"),
    of_worker("unknown field", replcas=3),
]
MISTYPED_PROBE = {"tcpSocket": {"prot": 2222}}
FIRST = ".spec.containers[0]"
TEMPLATES = [
    of_template(without(worker().build(), "spec", "jobs", "worker", "template"), "", "Required value"),
    of_template(worker(template={}), ".spec", "Required value"),
    of_template(worker(template={"spec": {"restartPolicy": "Never"}}), ".spec.containers", "Required value"),
    of_template(templated(containers=[]), ".spec.containers", "should have at least 1 items"),
    of_template(templated(containers=[{"name": "tensorflow"}]), f"{FIRST}.image", "Required value"),
    of_template(templated(containers=2 * [{"name": "a", "image": "b"}]), ".spec.containers[1]", "Duplicate value"),
    of_template(worker(template=pod_template(imag="train:1")), f"{FIRST}.imag", "unknown field"),
    of_template(
        worker(template=pod_template(readinessProbe=MISTYPED_PROBE)),
        f"{FIRST}.readinessProbe.tcpSocket.prot",
        "unknown field",
    ),
    of_template(limited(memory="4GB"), f"{FIRST}.resources.limits.memory", "should match"),
    # A fraction of a CPU must be quoted: a CRD schema does not have a type for number or text.
    of_template(limited(cpu=0.5), f"{FIRST}.resources.limits.cpu", "must be of type integer,string"),
    of_template(templated(hostNetwork=True), ".spec.hostNetwork", "remove hostNetwork"),
    of_template(templated(hostname="me"), ".spec.hostname", "remove hostname"),
    of_template(templated(subdomain="us"), ".spec.subdomain", "remove subdomain"),
    of_template(templated(ephemeralContainers=[]), ".spec.ephemeralContainers", "unknown field"),
    *(
        of_template(
            templated(volumes=[{"name": "data", "emptyDir": {}}, {"name": volume, "emptyDir": {}}]),
            ".spec.volumes[1].name",
            "give yours another name",
        )
        for volume in ("tfcluster-view", "tfcluster-resolver")
    ),
    *(
        of_template(
            containing(containers, volumeMounts=[{"name": "data", "mountPath": path}]),
            f".spec.{containers}[0].volumeMounts[0].mountPath",
            "mount yours elsewhere",
        )
        for containers in ("containers", "initContainers")
        for folder in ("/etc/tfcluster", "/opt/tfcluster-resolver")
        for path in (folder, f"{folder}/", f"{folder}/x/y")
    ),
    *(
        of_template(
            containing(containers, env=[{"name": "MINE", "value": "1"}, {"name": variable, "value": "ps"}]),
            f".spec.{containers}[0].env[1].name",
            "remove it, or give yours another name",
        )
        for containers in ("containers", "initContainers")
        for variable in ("TFCLUSTER_JOB", "TFCLUSTER_TASK_INDEX", "TFCLUSTER_ADDRESS")
    ),
    *(
        of_template(containing("containers", **{name: rows}), f"{FIRST}.{name}", f"must have at most {most} items")
        for name, most, rows in (
            ("env", 1024, [{"name": f"E{number}"} for number in range(1025)]),
            ("volumeMounts", 256, [{"name": "data", "mountPath": f"/data/{number}"} for number in range(257)]),
        )
    ),
    of_template(
        templated(containers=[{"name": f"c{number}", "image": "train:1"} for number in range(33)]),
        ".spec.containers",
        "must have at most 32 items",
    ),
    of_template(marked(namespace="kube-system"), ".metadata.namespace", "unknown field"),
    of_template(marked(name="me"), ".metadata.name", "unknown field"),
    *(
        of_template(
            marked(labels={"app": "mnist", label: "mine"}),
            ".metadata.labels",
            f'the operator sets "{label}" itself: remove it',
        )
        for label in (
            "tfcluster.dev/cluster",
            "tfcluster.dev/anything",
            *(f"app.kubernetes.io/{name}" for name in ("name", "instance", "component", "managed-by")),
        )
    ),
    *(
        of_template(
            marked(annotations={"note": "mine", annotation: "mine"}),
            ".metadata.annotations",
            f'the operator sets "{annotation}" itself: remove it',
        )
        for annotation in ("tfcluster.dev/view", "tfcluster.dev/anything")
    ),
]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NEAR_TO_A_CACHE = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "x"}}}
AFFINITY = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR_TO_A_CACHE]}}
PLACES = [
    row(
        templated(affinity=AFFINITY).spec(scheduling={"colocate": {"topologyKey": ZONE}}),
        "spec",
        "has a required podAffinity",
    ),
    *(
        row(worker().spec(scheduling=scheduling), f"spec.scheduling{path}", remedy)
        for scheduling, path, remedy in [
            ({"colocate": {}}, ".colocate.topologyKey", "Required value"),
            ({"colocate": {"topologyKey": "a b"}}, ".colocate.topologyKey", "should match"),
            ({"colocate": {"topologyKey": ZONE, "jobs": ["p"]}}, ".colocate", '"p" is not a job that is declared'),
            ({"colocate": {"topologyKey": ZONE, "jobs": []}}, ".colocate.jobs", "should have at least 1 items"),
            (
                {"spread": [{"topologyKey": HOST, "jobs": ["worker", "p"]}]},
                ".spread",
                '"p" is not a job that is declared',
            ),
            ({"colocate": {"topologyKey": HOST}, "spread": [{"topologyKey": HOST}]}, "", "have the same topologyKey"),
        ]
    ),
]

#: TensorFlow rejects these at the program's start, or reads a number that the user did not write.
UNREADABLE = (
    *("ps", "job:ps", "/job:my-worker", "/job:1ps", "/job:", "/job:ps/", "/job:ps/task:", "/job:ps/task:-1"),
    *("CPU:0", "/CPU", "/tpu:0", " /job:ps", "/job:ps ", "/job:ps\n", "/job:ps,/job:worker", "/job:пс"),
)
#: TensorFlow reads these, but each has a canonical form.
NOT_CANONICAL = (
    *("/job:*", "/job:*/task:1", "/job:ps/task:*", "/device:*", "/device:CPU:*", "/job:ps/gpu:*", "/job:PS"),
    *("/job:ps/device:cpu:0", "/CPU:0", "/job:ps/replica:1/task:0", "/job:ps/job:worker", "/task:0/job:ps"),
)
NOT_CANONICAL_NUMBERS = ("/job:ps/task:99999999999", "/job:ps/task:00", "/job:ps/device:GPU:00")
#: Valid filters of jobs and tasks that do not exist.
NOT_DECLARED = {
    "/job:chief": "names a job that is not declared: correct the filter, or declare the job",
    "/job:work": "names a job that is not declared",
    "/job:worker2/task:0": "names a job that is not declared",
    "/job:evaluator": "matches nothing, because an evaluator sees the cluster and is not in it: remove the filter",
    "/job:evaluator/task:0": "matches nothing, because an evaluator",
    "/job:evaluator/replica:0/task:0": "matches nothing, because an evaluator",
    "/job:worker/task:4": "names a task that the job does not have: use an index below the maxReplicas",
    "/job:ps/task:3": "names a task that the job does not have",
    "/job:ps/replica:0/task:3": "names a task that the job does not have",
    "/job:ps/task:9999/device:GPU:0": "names a task that the job does not have",
    "/task:4": "names a task that no job has",
    "/replica:0/task:4/cpu:0": "names a task that no job has",
}
FILTERS = [
    refused(f"{text!r} as {path}", worker_and_ps(**filters), f"{WORKER}.{path}", remedy)
    for text, remedy in {
        **dict.fromkeys((*UNREADABLE, *NOT_CANONICAL), FILTER_FORM),
        **dict.fromkeys(NOT_CANONICAL_NUMBERS, CANONICAL_NUMBER),
        **dict.fromkeys(("", "/", "/replica:0"), MATCHES_EVERYTHING),
        **NOT_DECLARED,
    }.items()
    for path, filters in (
        ("deviceFilters", {"filters": ["/job:ps", text]}),
        ("taskDeviceFilters", {"task_filters": {3: ["/job:ps", text]}}),
    )
]


def with_filters_of_tasks(tasks: int) -> dict[str, Any]:
    return {"replicas": tasks, "task_filters": {index: [] for index in range(tasks)}}


TASK_FILTERS = f"{WORKER}.taskDeviceFilters"
FILTER_LISTS = [
    row(worker_and_ps(filters=[7]), f"{WORKER}.deviceFilters[0]", "must be of type string"),
    row(worker_and_ps(filters=[f"/job:{'w' * 60}"]), f"{WORKER}.deviceFilters[0]", "may not be more than 64"),
    row(worker_and_ps(filters=17 * ["/job:ps"]), f"{WORKER}.deviceFilters", "must have at most 16 items"),
    row(worker_and_ps(task_filters={0: "/job:ps"}), f"{TASK_FILTERS}.0", "must be of type array"),
    row(worker(**with_filters_of_tasks(513)), TASK_FILTERS, "must have at most 512 items"),
    row(
        declared({"worker": with_filters_of_tasks(300), "ps": with_filters_of_tasks(213)}),
        "spec.jobs",
        "513 entries of taskDeviceFilters over all jobs are more than a cluster may have: keep 512",
    ),
    row(
        worker(replicas=1, maxReplicas=3, task_filters={3: ["/job:worker"]}),
        TASK_FILTERS,
        '"3" is a task that the job does not have: use an index below maxReplicas',
    ),
    # Without maxReplicas, replicas limits the tasks.
    row(worker(replicas=1, task_filters={1: []}), TASK_FILTERS, '"1" is a task that the job does not have'),
    *(
        row(
            worker_and_ps(task_filters={key: ["/job:ps"]}),
            TASK_FILTERS,
            f'"{key}" is not the index of a task: write "0", "1", "2" and so on',
        )
        for key in ("-1", "+1", "01", "1.0", " 1", "one", "", "99999999999999999999")
    ),
]


@pytest.mark.parametrize(
    ("manifest", "path", "remedy"),
    [*NAMES, *JOB_NAMES, *POD_NAMES, *COUNTS, *ISOLATION, *PLACES, *FIELDS, *TEMPLATES, *FILTERS, *FILTER_LISTS],
)
def test_invalid_spec_is_rejected_with_path_and_remedy(
    objects: Objects, manifest: Object, path: str, remedy: str
) -> None:
    message = refusal(objects, manifest)
    assert path in message
    assert remedy in message


def test_message_names_only_the_first_invalid_filter(objects: Objects) -> None:
    message = refusal(objects, worker_and_ps(filters=["/job:ps", "/job:worker/task:3", "/job:chief"]).build())
    assert 'spec.jobs.worker.deviceFilters: "/job:chief" names a job' in message
    assert '"/job:ps"' not in message


def test_message_names_the_job_and_the_task_whose_filter_is_wrong(objects: Objects) -> None:
    manifest = worker_and_ps(filters=["/job:ps"], task_filters={0: ["/job:ps"], 2: ["/job:ps/task:3"]})
    message = refusal(objects, manifest.build())
    assert "spec.jobs.worker.taskDeviceFilters.2: one names a task that the job does not have" in message


def test_all_problems_are_reported_together(objects: Objects) -> None:
    manifest = worker_and_ps(filters=["ps"]).job("Chief").spec(rpcLayer="GRPC")
    message = refusal(objects, manifest.build())
    assert all(path in message for path in (f"{WORKER}.deviceFilters", 'spec.jobs."Chief"', "spec.rpcLayer"))


def test_edit_is_checked_as_a_new_cluster_is(objects: Objects, namespace: str) -> None:
    created = objects.create(TFCLUSTERS, namespace, worker_and_ps(filters=["/job:ps/task:2"]).build())
    with pytest.raises(ApiException, match="names a task that the job does not have"):
        objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"jobs": {"ps": {"maxReplicas": 2}}}})
    assert created["spec"] == (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"]
