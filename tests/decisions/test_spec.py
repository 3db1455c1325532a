"""Reading a TFCluster: defaults, the input of pods, and all problems reported together."""

from typing import Any, cast

import pytest
from decisions.in_memory import TEMPLATE, make_body, make_cluster

from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.clusters import Parents


def problems(body: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(InvalidSpecError) as error:
        parse(body)
    return error.value.problems


def test_what_is_left_out_has_its_default():
    cluster = parse({"metadata": make_body()["metadata"], "spec": {"jobs": {"worker": {"template": TEMPLATE}}}})
    (job,) = cluster.jobs
    assert (cluster.spec.rpc_layer, cluster.spec.cluster_domain, cluster.suspend, cluster.status) == (
        "grpc",
        "",
        False,
        {},
    )
    assert (job.replicas, job.max_replicas, job.port, job.filters, job.task_filters) == (1, 1, 2222, (), {})
    assert cluster.inject


def test_tasks_come_by_job_and_index():
    cluster = make_cluster({"worker": 2, "chief": 1, "ps": 0})
    assert [str(task) for task in cluster.tasks()] == ["chief-0", "worker-0", "worker-1"]


def test_the_filters_of_a_task_replace_the_jobs():
    filters = {"deviceFilters": ["/job:ps"], "taskDeviceFilters": {"1": ["/job:worker"], "2": []}}
    (_, job) = make_cluster({"ps": 1, "worker": {"replicas": 4, **filters}}).jobs
    assert [job.filters_of(i) for i in range(4)] == [("/job:ps",), ("/job:worker",), (), ("/job:ps",)]


TWO_KEYS = {"spec": {**TEMPLATE["spec"], "nodeName": "n"}}


def hash_of(job: dict[str, Any], **spec: Any) -> str:
    return make_cluster({"worker": job}, **spec).jobs[0].template_hash


@pytest.mark.parametrize(
    ("job", "spec", "same"),
    [
        ({"replicas": 5}, {}, True),
        ({"maxReplicas": 9}, {}, True),
        ({"deviceFilters": ["/job:worker"]}, {}, True),
        ({"template": {"spec": {**TEMPLATE["spec"]}}}, {}, True),
        ({"port": 2222}, {}, True),
        ({}, {"suspend": True}, True),
        ({}, {"rpcLayer": "grpc+mpi"}, True),
        ({"template": {**TEMPLATE, "metadata": {"labels": {"a": "b"}}}}, {}, False),
        ({"port": 2223}, {}, False),
        ({}, {"port": 2223}, False),
        ({}, {"clusterDomain": "a.b"}, False),
        ({}, {"resolver": {"delivery": "ConfigMap", "tfConfig": "None"}}, True),
        ({}, {"resolver": {"delivery": "None"}}, False),
        ({}, {"resolver": {"tfConfig": "Environment"}}, False),
    ],
)
def test_the_hash_changes_exactly_when_a_pod_must_be_replaced(job, spec, same):
    """Template, port, domain and spec.resolver determine a pod; no other edit replaces one."""
    assert same == (hash_of({}) == hash_of(job, **spec))


def test_the_hash_does_not_depend_on_the_order_of_keys():
    turned = {"spec": dict(reversed(TWO_KEYS["spec"].items()))}
    assert hash_of({"template": TWO_KEYS}) == hash_of({"template": turned})


@pytest.mark.parametrize(
    "field", ["replicas", "port", "restartPolicy", "deviceFilters", "taskDeviceFilters", "template"]
)
def test_an_empty_key_of_a_job_is_as_good_as_none(field):
    body = make_body()
    body["spec"]["jobs"] = {"worker": {field: None}}
    assert parse(body) == parse({**body, "spec": {"jobs": {"worker": {}}}})


def test_all_unreadable_parts_are_reported_together():
    body = make_body({"worker": {"replicas": "x"}, "ps": {"port": "y"}}, suspend="no")
    assert [problem.partition(":")[0] for problem in problems(body)] == [
        "spec.suspend",
        "spec.jobs.ps.port",
        "spec.jobs.worker.replicas",
    ]


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
    container = {"name": "a", "image": "i", "resources": {"limits": limits}}
    (job,) = make_cluster({"worker": {"template": {"spec": {"containers": [container]}}}}).jobs
    assert counted == job.limits


NO_LIMIT: dict[str, Any] = {"type": "RollingUpdate"}


def rolling(most: Any) -> dict[str, Any]:
    return {**NO_LIMIT, "rollingUpdate": {"maxUnavailable": most}}


@pytest.mark.parametrize(
    ("strategy", "replicas", "unavailable"),
    [
        (rolling(1), 4, 1),
        (rolling(9), 4, 9),
        (rolling("25%"), 4, 1),
        (rolling("50%"), 5, 2),
        (rolling("99%"), 5, 4),
        (rolling("100%"), 5, 5),
        (rolling("1%"), 99, 1),
        (rolling("1%"), 200, 2),
        (rolling("50%"), 0, 1),
        (rolling("29%"), 100, 29),
        (NO_LIMIT, 40, 1),
        ({**NO_LIMIT, "rollingUpdate": None}, 40, 1),
        ({}, 40, 1),
    ],
)
def test_share_of_the_tasks_is_rounded_down_and_one_at_least(strategy, replicas, unavailable):
    cluster = make_cluster({"worker": replicas}, updateStrategy=strategy)
    assert cluster.spec.update_strategy.within(replicas) == unavailable


def test_resolver_is_delivered_unless_the_image_brings_it():
    delivered = [make_cluster(resolver={"delivery": one}).inject for one in ("ConfigMap", "None")]
    assert delivered == [True, False]


SHARES = ("0%", "101%", "25", "%", "", "-5%", "\u0662%", True, [], {})
LEAST = ("0%", "101%", "half", "-1%", True, [], {})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        *(({**make_body(), "spec": of}, "spec.jobs: declare at least one job") for of in (None, {}, {"jobs": None})),
        (make_body({}), "spec.jobs: declare at least one job"),
        *((make_body({"worker": 2}, updateStrategy=rolling(of)), "maxUnavailable") for of in SHARES),
        *(
            (make_body({"worker": {"disruptionBudget": {"minAvailable": of}}}), "worker.disruptionBudget.minAvailable")
            for of in LEAST
        ),
        (make_body(resolver={"delivery": "Image"}), "spec.resolver.delivery: "),
    ],
)
def test_invalid_value_is_reported(body, words):
    (problem,) = problems(body)
    assert words in problem


def test_spec_is_read_again_when_it_differs_whatever_its_generation():
    """A new default of the CRD changes what the API server returns, but not the generation."""
    parents = Parents(cast("Client", None))

    def read(version: int, before: TFCluster | None, **spec: Any) -> TFCluster:
        body = make_body({"worker": 1}, **spec)
        body["metadata"]["resourceVersion"] = str(version)
        assert parents.put(body)
        return parse(parents.bodies[("default", "demo")], before=before)

    first = read(1, None)
    same = read(2, first)
    assert same.jobs is first.jobs
    assert read(3, same, rpcLayer="grpc+mpi").spec.rpc_layer == "grpc+mpi"
