"""Admission on a real API server: what a TFCluster may not be, and what its author is told.

Each row of a table is one manifest that differs from a good one in one thing.  The refusal must name the path of that
thing and say what to do about it.
"""

from __future__ import annotations

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
    """A cluster of one job, worker."""
    return tfcluster("mnist").job("worker", **fields)


def worker_and_ps(**fields: Any) -> TFClusterBuilder:
    """A cluster with four workers, an evaluator and, at most, three parameter servers."""
    return worker(replicas=4, **fields).job("ps", replicas=2, maxReplicas=3).job("evaluator")


def declared(jobs: dict[str, dict[str, Any]]) -> TFClusterBuilder:
    """A cluster of these jobs, with these fields."""
    builder = tfcluster("mnist")
    for job, fields in jobs.items():
        builder.job(job, **fields)
    return builder


def templated(**pod: Any) -> TFClusterBuilder:
    """A cluster whose workers' template has further fields in its pod."""
    return worker(template=pod_template(spec=pod))


def containing(containers: str, **fields: Any) -> TFClusterBuilder:
    """A cluster whose workers' template has further fields in the first of its containers or initContainers."""
    return templated(**{containers: [{"name": "first", "image": "train:1", **fields}]})


def marked(**metadata: Any) -> TFClusterBuilder:
    """A cluster whose workers' template has metadata."""
    return worker(template=pod_template(metadata=metadata))


def without(manifest: Object, *path: str) -> Object:
    """Remove one field."""
    *way, last = path
    place = manifest
    for step in way:
        place = place[step]
    del place[last]
    return manifest


NAMES = [
    refused(
        f"a cluster may not be called {name}, because {because}",
        tfcluster(name).job("worker"),
        "metadata.name",
        SERVICE_NAME,
    )
    for name, because in {
        "1mnist": "a Service's name begins with a letter",
        "my.mnist": "a Service's name has no dot",
        "Mnist": "a Service's name has no capitals",
        "my_mnist": "a Service's name has no underscore",
        "mnist-": "a Service's name does not end with a hyphen",
        "m" * 64: "a Service's name has 63 characters at most",
    }.items()
]
JOB_NAMES = [
    refused(
        f"a job may not be called {job!r}, because {because}",
        tfcluster("mnist").job(job),
        f'spec.jobs."{job}"',
        JOB_NAME,
    )
    for job, because in {
        "Worker": "names in Kubernetes have no capitals",
        "my-worker": "TensorFlow's server aborts at a hyphen",
        "1worker": "TensorFlow wants a letter first",
        "_worker": "TensorFlow wants a letter first, not an underscore",
        "worker_": "its ConfigMap's name would end with a hyphen",
        "worker.gpu": "neither TensorFlow nor a host's name takes a dot",
        "": "it would be no name",
        "wörker": "names are ASCII",
        "wor ker": "names have no space",
    }.items()
]
POD_NAMES = [
    refused(
        "a pod's name of 64 characters is refused",
        tfcluster("m" * 55).job("worker"),
        WORKER,
        "shorten metadata.name or the name of the job",
    ),
    refused(
        "the pod that exists only at maxReplicas counts",
        tfcluster("m" * 53).job("worker", replicas=1, maxReplicas=1001),
        WORKER,
        "shorten metadata.name or the name of the job",
    ),
    refused(
        "the name of the job counts",
        tfcluster("mnist").job("w" * 57),
        f"spec.jobs.{'w' * 57}",
        "shorten metadata.name or the name of the job",
    ),
]
ISOLATION = [
    refused(what, worker().spec(isolation=isolation), f"spec.isolation{path}", words)
    for what, isolation, path, words in [
        ("a mode that is none", {"mode": "Some"}, ".mode", 'supported values: "None", "Cluster", "DeviceFilters"'),
        (
            "ports that are none",
            {"mode": "Cluster", "portScope": "Other"},
            ".portScope",
            'supported values: "Task", "All"',
        ),
        (
            "peers where everybody is let in",
            {"mode": "None", "allowFrom": [{"podSelector": {}}]},
            ".allowFrom",
            "remove allowFrom, or set mode Cluster",
        ),
        ("a list of no peers", {"allowFrom": []}, ".allowFrom", "should have at least 1 items"),
        ("a peer that names nobody", {"allowFrom": [{}]}, ".allowFrom[0]", "name a podSelector"),
        (
            "addresses and pods in one",
            {"allowFrom": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]},
            ".allowFrom[0].ipBlock",
            "write the selectors as a peer of their own",
        ),
        (
            "an address that is no range",
            {"allowFrom": [{"ipBlock": {"cidr": "10.0.0.1"}}]},
            ".allowFrom[0].ipBlock.cidr",
            "write a range of addresses such as",
        ),
        (
            "values for Exists",
            {
                "allowFrom": [
                    {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}
                ]
            },
            ".allowFrom[0].podSelector.matchExpressions[0]",
            "Exists and DoesNotExist take none",
        ),
    ]
]
COUNTS = [
    refused("a cluster without a job is refused", tfcluster("mnist"), "spec.jobs", "declare at least one job"),
    refused(
        "a cluster without jobs is refused", without(worker().build(), "spec", "jobs"), "spec.jobs", "Required value"
    ),
    refused("a cluster without a spec is refused", without(worker().build(), "spec"), "spec", "Required value"),
    refused(
        "a cluster has 16 jobs at most",
        {**worker().build(), "spec": {"jobs": {f"job{i}": {"template": pod_template()} for i in range(17)}}},
        "spec.jobs",
        "must have at most 16",
    ),
    refused("replicas may not be negative", worker(replicas=-1), f"{WORKER}.replicas", "greater than or equal to 0"),
    refused("10,001 replicas are absurd", worker(replicas=10001), f"{WORKER}.replicas", "less than or equal to 10000"),
    *(
        refused(
            f"10,001 tasks are too many, counted by {counted}",
            declared(jobs),
            "spec.jobs",
            "10001 tasks, counted by maxReplicas (by replicas where that is left out), are more than a cluster may",
        )
        for counted, jobs in {
            "replicas": {"worker": {"replicas": 6_000}, "ps": {"replicas": 4_001}},
            "maxReplicas": {"worker": {"maxReplicas": 6_000}, "ps": {"maxReplicas": 4_001}},
            "both": {"worker": {"replicas": 1, "maxReplicas": 10_000}, "ps": {"replicas": 1}},
        }.items()
    ),
    refused(
        "a suspended cluster is bounded too",
        declared({job: {"replicas": 10_000} for job in ("worker", "ps", "chief")}).spec(suspend=True),
        "spec.jobs",
        "30000 tasks, counted by maxReplicas",
    ),
    refused("replicas is a number", worker(replicas="3"), f"{WORKER}.replicas", "must be of type integer"),
    refused("maxReplicas may not be 0", worker(maxReplicas=0), f"{WORKER}.maxReplicas", "greater than or equal to 1"),
    refused(
        "maxReplicas has the bound of replicas",
        worker(maxReplicas=10001),
        f"{WORKER}.maxReplicas",
        "less than or equal to 10000",
    ),
    refused(
        "maxReplicas may not be below replicas",
        worker(replicas=3, maxReplicas=2),
        f"{WORKER}.maxReplicas",
        "is 2, below replicas, which is 3: raise maxReplicas or lower replicas",
    ),
]
FIELDS = [
    refused("port 0 is refused", worker().spec(port=0), "spec.port", "greater than or equal to 1"),
    refused("port 65536 is refused", worker().spec(port=65536), "spec.port", "less than or equal to 65535"),
    refused("a job's port 0 is refused", worker(port=0), f"{WORKER}.port", "greater than or equal to 1"),
    refused("a job's port 65536 is refused", worker(port=65536), f"{WORKER}.port", "less than or equal to 65535"),
    refused("suspend is true or false", worker().spec(suspend="yes"), "spec.suspend", "must be of type boolean"),
    refused("an empty rpcLayer is refused", worker().spec(rpcLayer=""), "spec.rpcLayer", "such as grpc"),
    refused("rpcLayer is no URL", worker().spec(rpcLayer="grpc://"), "spec.rpcLayer", "such as grpc"),
    refused(
        "clusterDomain has no dot at its start", worker().spec(clusterDomain=".local"), "spec.clusterDomain", "such as"
    ),
    refused(
        "clusterDomain has no dot at its end", worker().spec(clusterDomain="local."), "spec.clusterDomain", "such as"
    ),
    refused(
        "an empty clusterDomain is to be left out",
        worker().spec(clusterDomain=""),
        "spec.clusterDomain",
        "or leave the field out",
    ),
    refused(
        "a field that the spec does not have is refused",
        worker().spec(restartPolicy="Never"),
        "spec.restartPolicy",
        "unknown field",
    ),
    refused("a field that a job does not have is refused", worker(replcas=3), f"{WORKER}.replcas", "unknown field"),
]
TEMPLATES = [
    refused(
        "a job without a template is refused",
        without(worker().build(), "spec", "jobs", "worker", "template"),
        TEMPLATE,
        "Required value",
    ),
    refused("a template without a pod is refused", worker(template={}), f"{TEMPLATE}.spec", "Required value"),
    refused(
        "a template without containers is refused",
        worker(template={"spec": {"restartPolicy": "Never"}}),
        f"{TEMPLATE}.spec.containers",
        "Required value",
    ),
    refused(
        "a template with an empty list of containers is refused",
        templated(containers=[]),
        f"{TEMPLATE}.spec.containers",
        "should have at least 1 items",
    ),
    refused(
        "a container without an image is refused",
        templated(containers=[{"name": "tensorflow"}]),
        f"{TEMPLATE}.spec.containers[0].image",
        "Required value",
    ),
    refused(
        "two containers of one name are refused",
        templated(containers=2 * [{"name": "tensorflow", "image": "train:1"}]),
        f"{TEMPLATE}.spec.containers[1]",
        "Duplicate value",
    ),
    refused(
        "a typo in a container is refused",
        worker(template=pod_template(imag="train:1")),
        f"{TEMPLATE}.spec.containers[0].imag",
        "unknown field",
    ),
    refused(
        "a typo deep in a template is refused",
        worker(template=pod_template(readinessProbe={"tcpSocket": {"prot": 2222}})),
        f"{TEMPLATE}.spec.containers[0].readinessProbe.tcpSocket.prot",
        "unknown field",
    ),
    refused(
        "a quantity that Kubernetes cannot read is refused",
        worker(template=pod_template(resources={"limits": {"memory": "4GB"}})),
        f"{TEMPLATE}.spec.containers[0].resources.limits.memory",
        "should match",
    ),
    refused(
        "a fraction of a CPU is to be quoted, because a definition's schema knows no number that may be text",
        worker(template=pod_template(resources={"limits": {"cpu": 0.5}})),
        f"{TEMPLATE}.spec.containers[0].resources.limits.cpu",
        "must be of type integer,string",
    ),
    refused(
        "tasks do not share their node's network",
        templated(hostNetwork=True),
        f"{TEMPLATE}.spec.hostNetwork",
        "remove hostNetwork",
    ),
    refused(
        "a template may not name the host", templated(hostname="me"), f"{TEMPLATE}.spec.hostname", "remove hostname"
    ),
    refused(
        "a template may not name the subdomain",
        templated(subdomain="us"),
        f"{TEMPLATE}.spec.subdomain",
        "remove subdomain",
    ),
    refused(
        "a template may not add ephemeral containers",
        templated(ephemeralContainers=[]),
        f"{TEMPLATE}.spec.ephemeralContainers",
        "unknown field",
    ),
    *(
        refused(
            f"the volume {volume} is the operator's",
            templated(volumes=[{"name": "data", "emptyDir": {}}, {"name": volume, "emptyDir": {}}]),
            f"{TEMPLATE}.spec.volumes",
            f"the operator adds the volume {volume} itself: give yours another name",
        )
        for volume in ("tfcluster-view", "tfcluster-resolver")
    ),
    *(
        refused(
            f"{path} of one of the {containers} is the operator's to mount",
            containing(containers, volumeMounts=[{"name": "data", "mountPath": path}]),
            f"{TEMPLATE}.spec.{containers}[0].volumeMounts[0].mountPath",
            "mount yours elsewhere",
        )
        for containers in ("containers", "initContainers")
        for folder in ("/etc/tfcluster", "/opt/tfcluster-resolver")
        for path in (folder, f"{folder}/", f"{folder}/x/y")
    ),
    *(
        refused(
            f"the variable {variable} of one of the {containers} is the operator's",
            containing(containers, env=[{"name": "MINE", "value": "1"}, {"name": variable, "value": "ps"}]),
            f"{TEMPLATE}.spec.{containers}[0].env[1].name",
            "remove it, or give yours another name",
        )
        for containers in ("containers", "initContainers")
        for variable in ("TFCLUSTER_JOB", "TFCLUSTER_TASK_INDEX", "TFCLUSTER_ADDRESS")
    ),
    *(
        refused(
            f"{most + 1} {name} in a container are too many",
            containing("containers", **{name: [row(number) for number in range(most + 1)]}),
            f"{TEMPLATE}.spec.containers[0].{name}",
            f"must have at most {most} items",
        )
        for name, most, row in (
            ("env", 1024, lambda number: {"name": f"E{number}"}),
            ("volumeMounts", 256, lambda number: {"name": "data", "mountPath": f"/data/{number}"}),
        )
    ),
    refused(
        "33 containers are too many",
        templated(containers=[{"name": f"c{number}", "image": "train:1"} for number in range(33)]),
        f"{TEMPLATE}.spec.containers",
        "must have at most 32 items",
    ),
    refused(
        "a template may not name a namespace",
        marked(namespace="kube-system"),
        f"{TEMPLATE}.metadata.namespace",
        "unknown field",
    ),
    refused("a template may not name its pod", marked(name="me"), f"{TEMPLATE}.metadata.name", "unknown field"),
    *(
        refused(
            f"the label {label} is the operator's",
            marked(labels={"app": "mnist", label: "mine"}),
            f"{TEMPLATE}.metadata.labels",
            f'the operator sets "{label}" itself: remove it',
        )
        for label in (
            "tfcluster.dev/cluster",
            "tfcluster.dev/anything",
            "app.kubernetes.io/name",
            "app.kubernetes.io/instance",
            "app.kubernetes.io/component",
            "app.kubernetes.io/managed-by",
        )
    ),
    *(
        refused(
            f"the annotation {annotation} is the operator's",
            marked(annotations={"note": "mine", annotation: "mine"}),
            f"{TEMPLATE}.metadata.annotations",
            f'the operator sets "{annotation}" itself: remove it',
        )
        for annotation in ("tfcluster.dev/view", "tfcluster.dev/anything")
    ),
]

#: TensorFlow refuses these when the program starts, or reads a number that nobody wrote.
UNREADABLE = {
    "ps": FILTER_FORM,
    "job:ps": FILTER_FORM,
    "/job:my-worker": FILTER_FORM,
    "/job:1ps": FILTER_FORM,
    "/job:": FILTER_FORM,
    "/job:ps/": FILTER_FORM,
    "/job:ps/task:": FILTER_FORM,
    "/job:ps/task:-1": FILTER_FORM,
    "/job:ps/task:99999999999": CANONICAL_NUMBER,
    "CPU:0": FILTER_FORM,
    "/CPU": FILTER_FORM,
    "/tpu:0": FILTER_FORM,
    " /job:ps": FILTER_FORM,
    "/job:ps ": FILTER_FORM,
    "/job:ps\n": FILTER_FORM,
    "/job:ps,/job:worker": FILTER_FORM,
    "/job:пс": FILTER_FORM,
}
#: TensorFlow reads these, and what they match is everything, nothing, or better said in another way.
NOT_CANONICAL = {
    "": MATCHES_EVERYTHING,
    "/": MATCHES_EVERYTHING,
    "/replica:0": MATCHES_EVERYTHING,
    "/job:*": FILTER_FORM,
    "/job:*/task:1": FILTER_FORM,
    "/job:ps/task:*": FILTER_FORM,
    "/device:*": FILTER_FORM,
    "/device:CPU:*": FILTER_FORM,
    "/job:ps/gpu:*": FILTER_FORM,
    "/job:PS": FILTER_FORM,
    "/job:ps/device:cpu:0": FILTER_FORM,
    "/CPU:0": FILTER_FORM,
    "/job:ps/replica:1/task:0": FILTER_FORM,
    "/job:ps/job:worker": FILTER_FORM,
    "/task:0/job:ps": FILTER_FORM,
    "/job:ps/task:00": CANONICAL_NUMBER,
    "/job:ps/device:GPU:00": CANONICAL_NUMBER,
}
#: What is well said, of something that is not there.
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
    refused(
        f"{text!r} as {path}: {why}",
        worker_and_ps(**filters),
        f"{WORKER}.{path}",
        remedy,
    )
    for why, texts in (
        ("TensorFlow cannot read it", UNREADABLE),
        ("it is not the canonical form", NOT_CANONICAL),
        ("it names what is not declared", NOT_DECLARED),
    )
    for text, remedy in texts.items()
    for path, filters in (
        ("deviceFilters", {"filters": ["/job:ps", text]}),
        ("taskDeviceFilters", {"task_filters": {3: ["/job:ps", text]}}),
    )
]
FILTER_LISTS = [
    refused("a filter is text", worker_and_ps(filters=[7]), f"{WORKER}.deviceFilters[0]", "must be of type string"),
    refused(
        "a filter has 64 characters at most",
        worker_and_ps(filters=[f"/job:{'w' * 60}"]),
        f"{WORKER}.deviceFilters[0]",
        "may not be more than 64",
    ),
    refused(
        "a job has 16 filters at most",
        worker_and_ps(filters=17 * ["/job:ps"]),
        f"{WORKER}.deviceFilters",
        "must have at most 16 items",
    ),
    refused(
        "filters are a list",
        worker_and_ps(task_filters={0: "/job:ps"}),
        f"{WORKER}.taskDeviceFilters.0",
        "must be of type array",
    ),
    refused(
        "513 tasks with filters of their own are too many",
        worker(replicas=600, task_filters={index: ["/job:worker"] for index in range(513)}),
        f"{WORKER}.taskDeviceFilters",
        "must have at most 512 items",
    ),
    refused(
        "513 tasks with filters of their own are too many, over all jobs",
        declared(
            {
                job: {"replicas": tasks, "task_filters": {index: [] for index in range(tasks)}}
                for job, tasks in (("worker", 300), ("ps", 213))
            }
        ),
        "spec.jobs",
        "513 entries of taskDeviceFilters over all jobs are more than a cluster may have: keep 512",
    ),
    refused(
        "filters may not be given to a task above maxReplicas",
        worker(replicas=1, maxReplicas=3, task_filters={3: ["/job:worker"]}),
        f"{WORKER}.taskDeviceFilters",
        '"3" is a task that the job does not have: use an index below maxReplicas',
    ),
    refused(
        "where maxReplicas is left out, replicas bounds the tasks",
        worker(replicas=1, task_filters={1: ["/job:worker"]}),
        f"{WORKER}.taskDeviceFilters",
        '"1" is a task that the job does not have',
    ),
    *(
        refused(
            f"the key {key!r} is not an index",
            worker_and_ps(task_filters={key: ["/job:ps"]}),
            f"{WORKER}.taskDeviceFilters",
            f'"{key}" is not the index of a task: write "0", "1", "2" and so on',
        )
        for key in ("-1", "+1", "01", "1.0", " 1", "one", "", "99999999999999999999")
    ),
]


@pytest.mark.parametrize(
    ("manifest", "path", "remedy"),
    [*NAMES, *JOB_NAMES, *POD_NAMES, *COUNTS, *ISOLATION, *FIELDS, *TEMPLATES, *FILTERS, *FILTER_LISTS],
)
def test_refused_with_path_and_remedy(objects: Objects, manifest: Object, path: str, remedy: str) -> None:
    """A manifest with one thing wrong is refused by a message with the path of that thing and what to do about it."""
    message = refusal(objects, manifest)

    assert path in message
    assert remedy in message


def test_message_names_the_first_wrong_filter_and_no_right_one(objects: Objects) -> None:
    """Among right filters, the message quotes the wrong one."""
    message = refusal(objects, worker_and_ps(filters=["/job:ps", "/job:worker/task:3", "/job:chief"]).build())

    assert 'spec.jobs.worker.deviceFilters: "/job:chief" names a job' in message
    assert '"/job:ps"' not in message


def test_message_names_the_job_and_the_task_whose_filter_is_wrong(objects: Objects) -> None:
    """Among many lists of filters, the message gives the path of the wrong one."""
    manifest = worker_and_ps(filters=["/job:ps"], task_filters={0: ["/job:ps"], 2: ["/job:ps/task:3"]})

    message = refusal(objects, manifest.build())

    assert "spec.jobs.worker.taskDeviceFilters.2: one names a task that the job does not have" in message


def test_all_that_is_wrong_is_told_at_once(objects: Objects) -> None:
    """A manifest with several wrong things is refused once, by a message with all of them."""
    manifest = worker_and_ps(filters=["ps"]).job("Chief").spec(rpcLayer="GRPC")

    message = refusal(objects, manifest.build())

    assert all(path in message for path in (f"{WORKER}.deviceFilters", 'spec.jobs."Chief"', "spec.rpcLayer"))


def test_edit_is_checked_as_a_new_cluster_is(objects: Objects, namespace: str) -> None:
    """What may not be created may not come by an edit either, and the cluster stays as it was."""
    created = objects.create(TFCLUSTERS, namespace, worker_and_ps(filters=["/job:ps/task:2"]).build())

    with pytest.raises(ApiException, match="names a task that the job does not have"):
        objects.patch(TFCLUSTERS, namespace, "mnist", {"spec": {"jobs": {"ps": {"maxReplicas": 2}}}})

    assert created["spec"] == (objects.get(TFCLUSTERS, namespace, "mnist") or {})["spec"]
