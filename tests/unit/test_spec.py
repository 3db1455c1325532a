"""Reading a TFCluster: defaults, what pods are made from, and every problem told at once."""

from __future__ import annotations

from typing import Any

import pytest
from unit.in_memory import TEMPLATE, InMemoryWorld, make_body, make_cluster

from tfcluster_operator.model.parse import MOST_TASK_FILTERS, MOST_TASKS, InvalidSpecError, is_ours, parse
from tfcluster_operator.model.spec import Task


def problems(body: dict[str, Any]) -> tuple[str, ...]:
    """Give what is wrong with a TFCluster."""
    with pytest.raises(InvalidSpecError) as error:
        parse(body)
    return error.value.problems


def test_what_is_left_out_has_its_default():
    """One replica, port 2222, grpc, no domain, not suspended, room for the replicas alone."""
    cluster = parse({"metadata": make_body()["metadata"], "spec": {"jobs": {"worker": {"template": TEMPLATE}}}})
    (job,) = cluster.jobs

    assert (cluster.rpc_layer, cluster.cluster_domain, cluster.suspend, cluster.status) == ("grpc", "", False, {})
    assert (job.replicas, job.max_replicas, job.port, job.filters, job.task_filters) == (1, 1, 2222, (), {})


def test_what_is_declared_is_read():
    """Every field of the spec arrives as a value."""
    worker = {
        "replicas": 2,
        "maxReplicas": 5,
        "port": 9000,
        "deviceFilters": ["/job:worker"],
        "taskDeviceFilters": {"4": ["/job:worker/task:0"]},
        "template": TEMPLATE,
    }
    cluster = make_cluster({"worker": worker}, rpcLayer="grpc+gdr", clusterDomain="a.b", suspend=True, generation=6)
    (job,) = cluster.jobs

    assert (
        cluster.name,
        cluster.namespace,
        cluster.uid,
        cluster.generation,
        cluster.deleting,
    ) == ("demo", "default", "uid-of-the-cluster", 6, False)
    assert (cluster.rpc_layer, cluster.cluster_domain, cluster.suspend) == ("grpc+gdr", "a.b", True)
    assert (
        job.replicas,
        job.max_replicas,
        job.port,
        job.filters,
        job.task_filters,
        job.template,
    ) == (2, 5, 9000, ("/job:worker",), {4: ("/job:worker/task:0",)}, TEMPLATE)


def test_a_job_takes_the_clusters_port_unless_it_has_its_own():
    """The port of the spec is every job's default."""
    cluster = make_cluster({"chief": 1, "worker": {"port": 3000}}, port=8000)

    assert {job.name: job.port for job in cluster.jobs} == {"chief": 8000, "worker": 3000}


def test_a_deletion_timestamp_means_that_the_cluster_goes():
    """A TFCluster in deletion is read as such."""
    body = make_body()
    body["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"

    assert parse(body).deleting


def test_tasks_come_by_job_and_index():
    """Jobs are in the order of their names, tasks in that of their indices."""
    cluster = make_cluster({"worker": 2, "chief": 1, "ps": 0})

    assert [str(task) for task in cluster.tasks()] == ["chief-0", "worker-0", "worker-1"]


def test_the_filters_of_a_task_replace_the_jobs():
    """A task with its own list has that list alone, be it empty."""
    filters = {"deviceFilters": ["/job:ps"], "taskDeviceFilters": {"1": ["/job:worker"], "2": []}}
    (_, job) = make_cluster({"ps": 1, "worker": {"replicas": 4, **filters}}).jobs

    assert [job.filters_of(i) for i in range(4)] == [("/job:ps",), ("/job:worker",), (), ("/job:ps",)]


@pytest.mark.parametrize(
    ("jobs", "spec", "same"),
    [
        ({"worker": {"replicas": 5}}, {}, True),
        ({"worker": {"maxReplicas": 9}}, {}, True),
        ({"worker": {"deviceFilters": ["/job:worker"]}}, {}, True),
        ({"worker": {"template": {"spec": {**TEMPLATE["spec"]}}}}, {}, True),
        ({"worker": {"port": 2222}}, {}, True),
        ({"worker": {}}, {"suspend": True}, True),
        ({"worker": {}}, {"rpcLayer": "grpc+mpi"}, True),
        ({"worker": {"template": {**TEMPLATE, "metadata": {"labels": {"a": "b"}}}}}, {}, False),
        ({"worker": {"port": 2223}}, {}, False),
        ({"worker": {}}, {"port": 2223}, False),
        ({"worker": {}}, {"clusterDomain": "a.b"}, False),
        ({"worker": {}}, {"resolver": {"delivery": "ConfigMap", "tfConfig": "None"}}, True),
        ({"worker": {}}, {"resolver": {"delivery": "None"}}, False),
        ({"worker": {}}, {"resolver": {"tfConfig": "Environment"}}, False),
    ],
)
def test_the_hash_changes_exactly_when_a_pod_must_be_replaced(jobs, spec, same):
    """Template, port, domain and what spec.resolver brings are what a pod is made from; nothing else costs a pod."""
    was = make_cluster({"worker": {}}).jobs[0].template_hash

    assert same == (was == make_cluster(jobs, **spec).jobs[0].template_hash)


def test_the_hash_does_not_depend_on_the_order_of_keys():
    """The same template written in another order is the same template."""
    turned = {"spec": dict(reversed(TEMPLATE["spec"].items()))}

    assert (
        make_cluster({"a": {}}).jobs[0].template_hash == make_cluster({"a": {"template": turned}}).jobs[0].template_hash
    )


def test_an_address_is_the_tasks_dns_name_and_port():
    """Pod, Service, namespace, "svc", domain if any, port."""
    cluster = make_cluster({"data_loader": 3}, clusterDomain="cluster.local")

    assert cluster.address_of(Task(cluster.jobs[0], 2)) == "demo-data-loader-2.demo.default.svc.cluster.local:2222"


@pytest.mark.parametrize("spec", [None, {}, {"jobs": None}, {"jobs": {}}])
def test_a_cluster_without_jobs_is_told(spec):
    """There is nothing to materialise, and the message says what to do."""
    assert problems({**make_body(), "spec": spec}) == ("spec.jobs: declare at least one job",)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"replicas": "many"}, ".replicas: it must be a whole number from 0 to 2147483647, and is 'many'"),
        ({"replicas": -1}, ".replicas: it must be a whole number from 0 to 2147483647, and is -1"),
        ({"replicas": True}, ".replicas: it must be a whole number from 0 to 2147483647, and is True"),
        ({"replicas": 1.5}, ".replicas: it must be a whole number from 0 to 2147483647, and is 1.5"),
        ({"maxReplicas": 10**30}, f".maxReplicas: it must be a whole number from 0 to 2147483647, and is {10**30}"),
        ({"port": []}, ".port: it must be a whole number from 1 to 65535, and is []"),
        ({"port": 0}, ".port: it must be a whole number from 1 to 65535, and is 0"),
        ({"deviceFilters": 5}, ".deviceFilters: it must be a list, and is 5"),
        ({"deviceFilters": [5]}, ".deviceFilters: it must be a list of strings, and holds 5"),
        ({"taskDeviceFilters": {"x": []}}, ".taskDeviceFilters: 'x' is not the index of a task, such as 0"),
        ({"taskDeviceFilters": {"1_0": []}}, ".taskDeviceFilters: '1_0' is not the index of a task, such as 0"),
        ({"taskDeviceFilters": ["/job:worker"]}, ".taskDeviceFilters: it must be an object, and is ['/job:worker']"),
        ({"taskDeviceFilters": {"0": [{}]}}, ".taskDeviceFilters.0: it must be a list of strings, and holds {}"),
        ({"startAfter": [None]}, ".startAfter: it must be a list of strings, and holds null"),
        ({"restartScope": "All"}, ".restartScope: it must be one of Task, Job, Cluster, and is 'All'"),
        ({"template": "pod"}, ".template: it must be an object, and is 'pod'"),
        (None, ": it must be an object, and is null"),
        ("job", ": it must be an object, and is 'job'"),
    ],
)
def test_a_part_of_the_wrong_type_is_told_with_its_path(job, told):
    """What an old CRD lets through is an InvalidSpecError that names the field, what it must be and what it is."""
    body = make_body()
    body["spec"]["jobs"]["worker"] = job

    assert problems(body) == (f"spec.jobs.worker{told}",)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ({"metadata": []}, "metadata: it must be an object, and is []"),
        ({"metadata": {"labels": {"a": 5}}}, "metadata.labels.a: it must be a string, and is 5"),
        ({"spec": "pod"}, "spec: it must be an object, and is 'pod'"),
        ({"spec": {"containers": {}}}, "spec.containers: it must be a list, and is {}"),
        ({"spec": {"containers": [None]}}, "spec.containers[0]: it must be an object, and is null"),
        ({"spec": {"containers": [{"image": []}]}}, "spec.containers[0].image: it must be a string, and is []"),
        ({"spec": {"containers": [{"env": ["A=B"]}]}}, "spec.containers[0].env[0]: it must be an object, and is 'A=B'"),
        (
            {"spec": {"containers": [{"resources": {"limits": ["gpu"]}}]}},
            "spec.containers[0].resources.limits: it must be an object, and is ['gpu']",
        ),
        ({"spec": {"initContainers": [{"name": 5}]}}, "spec.initContainers[0].name: it must be a string, and is 5"),
        ({"spec": {"volumes": ["v"]}}, "spec.volumes[0]: it must be an object, and is 'v'"),
    ],
)
def test_a_part_of_the_template_of_the_wrong_type_is_told(template, told):
    """What the operator reads of a template, or adds to, is of the right type before a pod is made from it."""
    assert problems(make_body({"worker": {"template": template}})) == (f"spec.jobs.worker.template.{told}",)


@pytest.mark.parametrize(
    "field", ["replicas", "port", "restartPolicy", "deviceFilters", "taskDeviceFilters", "template"]
)
def test_an_empty_key_of_a_job_is_as_good_as_none(field):
    """Kubernetes takes null as absent, and so do we."""
    body = make_body()
    body["spec"]["jobs"] = {"worker": {field: None}}

    assert parse(body) == parse({**body, "spec": {"jobs": {"worker": {}}}})


@pytest.mark.parametrize("name", ["my-worker", "Worker", "1a", "", "a_", "größe", "a.b"])
def test_job_that_cannot_be_named_is_told(name):
    """Of such names two may be one to DNS, and their pods would take each other's place for ever."""
    (problem,) = problems(make_body({"worker": 1, name: 1}))

    assert problem.startswith(f"spec.jobs: {name!r} cannot name a job: use lower case letters")


def test_all_parts_that_cannot_be_read_are_told_at_once():
    """One wrong field hides no other."""
    body = make_body({"worker": {"replicas": "x"}, "ps": {"port": "y"}}, suspend="no", resolver=5)

    assert [problem.partition(":")[0] for problem in problems(body)] == [
        "spec.resolver",
        "spec.jobs.ps.port",
        "spec.jobs.worker.replicas",
        "spec.suspend",
    ]


def test_long_value_is_told_in_short():
    """A condition's message has a bound, which no value of the user's may break."""
    assert len(problems(make_body({"worker": {"deviceFilters": ["x" * 1_000_000]}}))[0]) < 500
    assert len(problems(make_body({"x" * 100_000: {"replicas": "y" * 1_000_000}}))[0]) < 1_000


@pytest.mark.parametrize("spec", ["x", 5, ["jobs"], True])
def test_spec_that_is_no_object_is_told(spec):
    """It is ours to report, because no other controller is named."""
    body = {**make_body(), "spec": spec}

    assert is_ours(body)
    assert problems(body)[0].startswith("spec: it must be an object")


def test_every_bad_filter_is_told_with_its_place_in_the_order_of_declaration():
    """All problems come at once, each with its path and text, in an order that no restart changes."""
    worker = {
        "replicas": 2,
        "deviceFilters": ["worker", "/job:ps", "/job:worker/task:2"],
        "taskDeviceFilters": {"1": ["/task:1/job:worker", "/job:chief"]},
    }

    assert problems(make_body({"worker": worker})) == (
        "spec.jobs.worker.deviceFilters: 'worker' is not a device filter in canonical form, such as /job:ps/task:0",
        "spec.jobs.worker.deviceFilters: '/job:ps' names a job that is not declared",
        "spec.jobs.worker.deviceFilters: '/job:worker/task:2' names a task at or above maxReplicas",
        (
            "spec.jobs.worker.taskDeviceFilters.1: '/task:1/job:worker' is not a device filter in canonical form, "
            "such as /job:ps/task:0"
        ),
        "spec.jobs.worker.taskDeviceFilters.1: '/job:chief' names a job that is not declared",
    )


NULLS: dict[str, Any] = {
    "template": None,
    "template.spec": {"spec": None},
    "containers": {"spec": {"containers": None, "initContainers": None}},
    "resources": {"spec": {"containers": [{"name": "a", "resources": None}]}},
    "limits": {"spec": {"containers": [{"name": "a", "resources": {"limits": None}}]}},
    "env": {"spec": {"containers": [{"name": "a", "env": None, "volumeMounts": None}], "volumes": None}},
    "metadata": {"metadata": {"labels": None, "annotations": None}, "spec": {"containers": []}},
}


@pytest.mark.parametrize("template", NULLS.values(), ids=NULLS)
def test_an_empty_key_of_the_template_is_as_good_as_none(template):
    """Kubernetes takes null as absent, and so do we: the cluster is planned, not crashed over."""
    from tfcluster_operator.manifests import build_pod

    cluster = make_cluster({"worker": {"template": template}})

    assert len(InMemoryWorld().plan(cluster).actions) == 3
    (task,) = cluster.tasks()
    assert build_pod(cluster, task, view_digest="d", attempt=0)["metadata"]["name"] == "demo-worker-0"


@pytest.mark.parametrize(
    ("limits", "counted"),
    [
        ({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 2}),
        ({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": 2}),
        ({"cpu": "4", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi"}, {}),
        ({"kubernetes.io/batch": 1, "attach.kubernetes.io/x": 1}, {}),
        ({"nvidia.com/gpu": "1.0"}, {"nvidia.com/gpu": 1}),
        ({"nvidia.com/gpu": "500m"}, {}),
        (None, {}),
    ],
)
def test_extended_resources_alone_are_accelerators(limits, counted):
    """A limit counts when its name has a domain that is not Kubernetes' own, and its quantity is a whole number."""
    container = {"name": "a", "image": "i", "resources": {"limits": limits}}
    (job,) = make_cluster({"worker": {"template": {"spec": {"containers": [container]}}}}).jobs

    assert counted == job.limits()


@pytest.mark.parametrize(
    ("most", "replicas", "unavailable"),
    [
        (1, 4, 1),
        (9, 4, 9),
        ("25%", 4, 1),
        ("50%", 5, 2),
        ("99%", 5, 4),
        ("100%", 5, 5),
        ("1%", 99, 1),
        ("1%", 200, 2),
        ("50%", 0, 1),
        ("29%", 100, 29),
    ],
)
def test_share_of_the_tasks_is_rounded_down_and_one_at_least(most, replicas, unavailable):
    """A rolling update may have a number of tasks down, or a percentage of the job's replicas."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
    cluster = make_cluster({"worker": replicas}, updateStrategy=strategy)

    assert cluster.update_strategy.within(replicas) == unavailable


@pytest.mark.parametrize("strategy", [{"type": "RollingUpdate"}, {"type": "RollingUpdate", "rollingUpdate": None}, {}])
def test_rolling_update_has_one_task_down_unless_it_is_told(strategy):
    """Without rollingUpdate one task of a job may be down, whatever its size."""
    assert make_cluster({"worker": 40}, updateStrategy=strategy).update_strategy.within(40) == 1


@pytest.mark.parametrize("most", ["0%", "101%", "25", "%", "", "-5%", "\u0662%", True, [], {}])
def test_share_that_is_none_is_told(most):
    """An older definition may let another value pass: it is told with its path."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}

    (problem,) = problems(make_body({"worker": 2}, updateStrategy=strategy))

    assert problem


@pytest.mark.parametrize(
    ("resolver", "inject"), [({}, True), ({"delivery": "ConfigMap"}, True), ({"delivery": "None"}, False)]
)
def test_resolver_is_delivered_unless_the_image_brings_it(resolver, inject):
    """Delivery None leaves the pods without the operator's copy."""
    assert make_cluster({"worker": 1}, resolver=resolver).inject is inject


def test_unknown_delivery_of_the_resolver_is_told():
    """Another way to deliver is one that this operator does not know."""
    assert (
        "resolver.delivery: it must be one of ConfigMap, None"
        in problems(make_body({"worker": 1}, resolver={"delivery": "Image"}))[0]
    )


# --- bounds


def _bounded(tasks: int = 2, *, room: int | None = None, own: int = 0) -> dict[str, Any]:
    filters = {str(index): [] for index in range(own)}
    more = {} if room is None else {"maxReplicas": room}
    return make_body({"ps": 1, "worker": {"replicas": tasks, "taskDeviceFilters": filters, **more}})


def test_largest_cluster_is_read():
    """The bounds themselves are allowed."""
    cluster = parse(_bounded(MOST_TASKS - 1, own=MOST_TASK_FILTERS))

    assert sum(job.replicas for job in cluster.jobs) == MOST_TASKS


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (_bounded(MOST_TASKS), "10001 tasks are more than the 10000 that a TFCluster may have"),
        (_bounded(1, room=MOST_TASKS), "maxReplicas add up to 10001, more than the 10000 tasks"),
        (_bounded(600, own=MOST_TASK_FILTERS + 1), "513 taskDeviceFilters are more than the 512"),
    ],
    ids=["tasks", "tasks that may come", "filters of single tasks"],
)
def test_cluster_beyond_a_bound_is_told(body, words):
    """Where an older CRD lets it through, the message names the field, the number and the bound."""
    told = problems(body)

    assert all(one.startswith("spec.jobs: ") for one in told)
    assert any(words in one for one in told)
