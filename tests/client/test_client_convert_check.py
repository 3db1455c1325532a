"""What both tell each replica: TFJob by its rules, a TFCluster by the operator's own code."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfcluster.convert.check import D5, D6, ITSELF, Seen, by_tfcluster, by_tfjob, compare
from tfcluster.convert.conversion import Conversion, convert


def converted(version: str = "v1", *, dynamic: bool = False, ports: dict[str, int] | None = None, **counts: int) -> Any:
    """Convert a TFJob with so many replicas of each type."""
    specs: dict[str, Any] = {}
    for key, count in counts.items():
        named = [{"name": "tfjob-port", "containerPort": port} for of, port in (ports or {}).items() if of == key]
        container = {"name": "tensorflow", "image": "i", "command": ["run"], "ports": named}
        specs[key] = {"replicas": count, "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": f"kubeflow.org/{version}", "kind": "TFJob", "metadata": {"name": "small"}}
    conversion = convert({**job, "spec": {"enableDynamicWorker": dynamic, "tfReplicaSpecs": specs}})
    assert conversion.cluster is not None
    return conversion


def host(job: str, index: int, port: int = 2222) -> str:
    """Give the address that TFJob gives a replica."""
    return f"small-{job}-{index}.default.svc:{port}"


def test_tfjob_shows_all_tasks_to_every_task():
    told = by_tfjob(converted(Chief=1, PS=2, Worker=2, Evaluator=1, ports={"PS": 5000}).job)
    whole = {
        "chief": {0: host("chief", 0)},
        "ps": {0: host("ps", 0, 5000), 1: host("ps", 1, 5000)},
        "worker": {0: host("worker", 0), 1: host("worker", 1)},
        "evaluator": {0: host("evaluator", 0)},
    }
    assert told["worker", 1] == Seen(whole, ("worker", 1))
    assert told["evaluator", 0] == Seen(whole, ("evaluator", 0))


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1", "v1alpha2"])
def test_older_tfjob_leaves_the_evaluator_out(version: str):
    conversion = converted(version, Chief=1, Worker=1, Evaluator=1)
    assert by_tfjob(conversion.job)["chief", 0].cluster.keys() == {"chief", "worker"}  # type: ignore[union-attr]
    assert [one.wanted for one in compare(conversion.job, conversion.cluster).differences] == [ITSELF]


def test_tfjob_tells_a_single_replica_nothing():
    conversion = converted(Worker=1)
    assert by_tfjob(conversion.job) == by_tfcluster(conversion.cluster) == {("worker", 0): None}
    assert compare(conversion.job, conversion.cluster).proves


def test_tfjob_tells_dynamic_workers_of_the_ps():
    told = by_tfjob(converted(dynamic=True, Chief=1, PS=2, Worker=2).job)
    ps = {0: host("ps", 0), 1: host("ps", 1)}
    assert told["worker", 1] == Seen({"worker": {1: host("worker", 1)}, "ps": ps}, ("worker", 1))
    assert told["ps", 1] == Seen({"ps": {0: host("ps", 1)}}, ("ps", 1))
    assert told["chief", 0] == Seen({}, ("chief", 0))


def test_differences_are_those_of_the_defects():
    dense, sparse = converted(Chief=1, Worker=2, Evaluator=1), converted(dynamic=True, Chief=1, PS=2, Worker=2)
    assert {one.wanted for one in compare(dense.job, dense.cluster).differences} == {D6}
    found = compare(sparse.job, sparse.cluster)
    assert ({one.wanted for one in found.differences}, found.proves) == ({D5}, True)
    assert {one.task for one in found.differences} == {"chief-0", "ps-1"}


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("spec.jobs.worker", {"replicas": 3}),
        ("spec.jobs.ps", {"port": 2223}),
        ("spec", {"resolver": {}}),
        ("spec.jobs.worker", {"deviceFilters": ["/job:ps"]}),
        ("metadata", {"name": "other"}),
    ],
)
def test_whatever_else_differs_is_found(place: str, change: dict[str, Any]):
    conversion = converted(PS=2, Worker=2)
    assert compare(conversion.job, conversion.cluster).proves
    node = conversion.cluster
    for key in place.split("."):
        node = node[key]
    node |= change
    assert not compare(conversion.job, conversion.cluster).proves


def test_a_job_of_another_name_is_found():
    conversion = converted(PS=2, Worker=2)
    del conversion.cluster["spec"]["successPolicy"]
    conversion.cluster["spec"]["jobs"]["reader"] = conversion.cluster["spec"]["jobs"].pop("worker")
    assert not compare(conversion.job, conversion.cluster).proves


def test_dynamic_workers_explain_no_other_difference():
    """The defect explains the right index of a ps, and nothing more."""
    conversion = converted(dynamic=True, PS=2, Worker=2)
    ps = conversion.cluster["spec"]["jobs"]["ps"]
    del ps["taskDeviceFilters"]
    ps["deviceFilters"] = ["/job:ps"]
    assert not compare(conversion.job, conversion.cluster).proves
    conversion = converted(dynamic=True, PS=2, Worker=2)
    conversion.cluster["spec"]["jobs"]["worker"]["replicas"] = 3
    found = [one for one in compare(conversion.job, conversion.cluster).differences if not one.wanted]
    assert [(one.task, one.words) for one in found] == [("worker-2", "only one of both has this task")]


MOST = {"PS": (0, 4), "Worker": (0, 12), "Evaluator": (1, 2), "Chief": (1, 1), "Reader": (1, 2)}
COUNTS = st.fixed_dictionaries({}, optional={key: st.integers(*ends) for key, ends in MOST.items()}).filter(bool)


@settings(max_examples=20, deadline=None)
@given(counts=COUNTS, dynamic=st.booleans(), version=st.sampled_from(["v1", "v1beta2"]), port=st.integers(1, 65535))
def test_any_tfjob_is_proved(counts: dict[str, int], dynamic: bool, version: str, port: int):
    conversion: Conversion = converted(version, dynamic=dynamic, ports={"Worker": port}, **counts)
    assert conversion.cluster is not None
    comparison = compare(conversion.job, conversion.cluster)
    assert comparison.proves, comparison.differences
    assert comparison.replicas == sum(counts.values())
