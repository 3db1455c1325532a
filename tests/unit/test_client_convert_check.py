"""What both tell each replica: TFJob by its rules, a TFCluster by the operator's own code."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tfjobs import TFJOBS

from tfcluster.convert.check import D5, D6, ITSELF, compare
from tfcluster.convert.conversion import Conversion, convert
from tfcluster.convert.documents import convert_text
from tfcluster.convert.tf_configs import Seen, by_tfcluster, by_tfjob

TEMPLATE = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["run"]}]}}


def converted(version: str = "v1", *, dynamic: bool = False, ports: dict[str, int] | None = None, **counts: int) -> Any:
    """Convert a TFJob with so many replicas of each type."""
    specs: dict[str, Any] = {}
    for key, count in counts.items():
        template = copy.deepcopy(TEMPLATE)
        if port := (ports or {}).get(key):
            template["spec"]["containers"][0]["ports"] = [{"name": "tfjob-port", "containerPort": port}]
        specs[key] = {"replicas": count, "template": template}
    conversion = convert(
        {
            "apiVersion": f"kubeflow.org/{version}",
            "kind": "TFJob",
            "metadata": {"name": "small"},
            "spec": {"enableDynamicWorker": dynamic, "tfReplicaSpecs": specs},
        }
    )
    assert conversion.cluster is not None
    return conversion


def host(job: str, index: int, port: int = 2222) -> str:
    """Give the address that TFJob gives a replica."""
    return f"small-{job}-{index}.default.svc:{port}"


# --- TFJob's rules, as they were measured


def test_tfjob_tells_everybody_everything():
    """Each replica finds all others, the evaluator too, by type and index, with the port of each type."""
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
    """Before the last form of v1 the evaluator was in nobody's cluster; here it is in its own."""
    conversion = converted(version, Chief=1, Worker=1, Evaluator=1)

    assert by_tfjob(conversion.job)["chief", 0].cluster.keys() == {"chief", "worker"}  # type: ignore[union-attr]
    assert [one.wanted for one in compare(conversion.job, conversion.cluster).differences] == [ITSELF]


def test_tfjob_tells_a_single_replica_nothing():
    """A job of one replica has no TF_CONFIG, and neither has its TFCluster."""
    conversion = converted(Worker=1)

    assert by_tfjob(conversion.job) == by_tfcluster(conversion.cluster) == {("worker", 0): None}
    assert compare(conversion.job, conversion.cluster).proves


def test_tfjob_tells_dynamic_workers_of_the_ps():
    """A worker finds itself and the ps, a ps itself at the index 0, all others nobody."""
    told = by_tfjob(converted(dynamic=True, Chief=1, PS=2, Worker=2).job)

    ps = {0: host("ps", 0), 1: host("ps", 1)}
    assert told["worker", 1] == Seen({"worker": {1: host("worker", 1)}, "ps": ps}, ("worker", 1))
    assert told["ps", 1] == Seen({"ps": {0: host("ps", 1)}}, ("ps", 1))
    assert told["chief", 0] == Seen({}, ("chief", 0))


# --- what differs, and why


def test_differences_are_those_of_the_defects():
    """The evaluator is out (D6); with dynamic workers each role finds its part (D5)."""
    dense, sparse = converted(Chief=1, Worker=2, Evaluator=1), converted(dynamic=True, Chief=1, PS=2, Worker=2)

    assert {one.wanted for one in compare(dense.job, dense.cluster).differences} == {D6}
    found = compare(sparse.job, sparse.cluster)
    assert ({one.wanted for one in found.differences}, found.proves) == ({D5}, True)
    assert {one.task for one in found.differences} == {"chief-0", "ps-1"}


def test_addresses_are_the_pods_names():
    """The TFCluster's addresses begin with the names that TFJob's Services have."""
    conversion = converted(PS=1, Worker=2)
    ours = by_tfcluster(conversion.cluster)["worker", 1]

    assert ours is not None
    assert ours.cluster["ps"] == {0: "small-ps-0.small.default.svc:2222"}


def more_workers(cluster: Any) -> None:
    cluster["spec"]["jobs"]["worker"]["replicas"] = 3


def another_port(cluster: Any) -> None:
    cluster["spec"]["jobs"]["ps"]["port"] = 2223


def no_tf_config(cluster: Any) -> None:
    del cluster["spec"]["resolver"]


def hidden(cluster: Any) -> None:
    cluster["spec"]["jobs"]["worker"]["deviceFilters"] = ["/job:ps"]


def another_name(cluster: Any) -> None:
    cluster["metadata"]["name"] = "other"


def another_job(cluster: Any) -> None:
    del cluster["spec"]["successPolicy"]
    cluster["spec"]["jobs"]["reader"] = cluster["spec"]["jobs"].pop("worker")


@pytest.mark.parametrize("change", [more_workers, another_port, no_tf_config, hidden, another_name, another_job])
def test_whatever_else_differs_is_found(change: Any):
    """A TFCluster that would tell a replica something else proves nothing."""
    conversion = converted(PS=2, Worker=2)
    assert compare(conversion.job, conversion.cluster).proves

    change(conversion.cluster)

    assert not compare(conversion.job, conversion.cluster).proves


def test_a_ps_that_sees_others_is_no_wanted_difference():
    """With dynamic workers the defect explains the right index of a ps, and nothing more."""
    conversion = converted(dynamic=True, PS=2, Worker=2)
    del conversion.cluster["spec"]["jobs"]["ps"]["taskDeviceFilters"]
    conversion.cluster["spec"]["jobs"]["ps"]["deviceFilters"] = ["/job:ps"]

    assert not compare(conversion.job, conversion.cluster).proves


def test_a_task_that_nobody_sees_is_found():
    """A worker too many is a difference, although dynamic workers do not see each other."""
    conversion = converted(dynamic=True, PS=2, Worker=2)
    more_workers(conversion.cluster)

    found = [one for one in compare(conversion.job, conversion.cluster).differences if not one.wanted]
    assert [(one.task, one.words) for one in found] == [("worker-2", "only one of both has this task")]


@pytest.mark.parametrize("name", [*TFJOBS])
def test_every_manifest_is_proved(name: str):
    """What comes out of each manifest tells each replica the same."""
    for conversion in convert_text(TFJOBS[name].text, "f").conversions:
        assert conversion.cluster is not None
        assert compare(conversion.job, conversion.cluster).proves


COUNTS = st.fixed_dictionaries(
    {},
    optional={
        "PS": st.integers(0, 4),
        "Worker": st.integers(0, 12),
        "Evaluator": st.integers(1, 2),
        "Chief": st.just(1),
        "Reader": st.integers(1, 2),
    },
).filter(bool)


@settings(max_examples=60, deadline=None)
@given(counts=COUNTS, dynamic=st.booleans(), version=st.sampled_from(["v1", "v1beta2"]), port=st.integers(1, 65535))
def test_any_tfjob_is_proved(counts: dict[str, int], dynamic: bool, version: str, port: int):
    """Whatever the roles and their number, both tell each replica the same but for the defects."""
    conversion: Conversion = converted(version, dynamic=dynamic, ports={"Worker": port}, **counts)

    assert conversion.cluster is not None
    comparison = compare(conversion.job, conversion.cluster)
    assert comparison.proves, comparison.differences
    assert comparison.replicas == sum(counts.values())
