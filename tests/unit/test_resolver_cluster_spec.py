"""Our ClusterSpec; that it agrees with TensorFlow's is tested where TensorFlow is (tests/tensorflow)."""

from __future__ import annotations

import copy
import pickle

import pytest

from tfcluster_resolver import ClusterSpec

SPARSE = {"worker": {3: "w3:1", 1: "w1:1"}, "ps": ["p0:1", "p1:1"], "idle": []}


def test_forms_of_the_tasks():
    """A dense job is a list, a sparse one an index map in order, one without tasks an empty map."""
    assert ClusterSpec(SPARSE).as_dict() == {"worker": {1: "w1:1", 3: "w3:1"}, "ps": ["p0:1", "p1:1"], "idle": {}}


def test_look_ups():
    """Counts, indices, addresses and holes are as TensorFlow gives them."""
    spec = ClusterSpec(SPARSE)

    assert spec.jobs == ["worker", "ps", "idle"]
    assert [spec.num_tasks(job) for job in spec.jobs] == [2, 2, 0]
    assert spec.task_indices("worker") == [1, 3]
    assert spec.task_address("worker", 3) == "w3:1"
    assert spec.job_tasks("worker") == [None, "w1:1", None, "w3:1"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda spec: spec.num_tasks("none"),
        lambda spec: spec.task_indices("none"),
        lambda spec: spec.task_address("none", 0),
        lambda spec: spec.task_address("worker", 0),
        lambda spec: spec.job_tasks("none"),
        lambda spec: spec.job_tasks("idle"),
    ],
)
def test_look_ups_of_what_is_not_there(ask):
    """An unknown job or task, and the list of a job without tasks, are a ValueError."""
    with pytest.raises(ValueError, match=r"worker|none|idle"):
        ask(ClusterSpec(SPARSE))


def test_repr_is_in_order_of_the_jobs():
    """The text names the jobs in order and reads as a constructor."""
    assert repr(ClusterSpec(SPARSE)) == (
        "ClusterSpec({'idle': {}, 'ps': ['p0:1', 'p1:1'], 'worker': {1: 'w1:1', 3: 'w3:1'}})"
    )


def test_equality_is_of_the_tasks():
    """A list equals the map of the same indices, order does not count, and specs cannot be hashed."""
    assert ClusterSpec({"a": ["x:1"], "b": []}) == ClusterSpec({"b": {}, "a": {"0": "x:1"}})
    assert ClusterSpec({"a": ["x:1"]}) != ClusterSpec({"a": {1: "x:1"}})
    with pytest.raises(TypeError):
        hash(ClusterSpec({}))


@pytest.mark.parametrize(
    "duplicate",
    [ClusterSpec, copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],  # noqa: S301 - our own bytes
)
def test_copies_are_equal(duplicate):
    """Every way to copy gives an equal spec."""
    assert duplicate(ClusterSpec(SPARSE)) == ClusterSpec(SPARSE)


@pytest.mark.parametrize("index", [-1, 2**31])
def test_index_out_of_range_is_refused(index):
    """A negative index, which TensorFlow takes and then loses, is refused as one that its protobuf cannot hold is."""
    with pytest.raises(ValueError, match=f"task index {index} of job 'worker'"):
        ClusterSpec({"worker": {index: "a:1"}})
