"""Our ClusterSpec tells of every input what TensorFlow's tells; deliberate differences are known by their cause."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
import tensorflow as tf
from cluster_inputs import DEFINITIONS, DICTS, NO_CLUSTERS, differences, in_our_pool, observed
from hypothesis import Phase, given, settings

from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.errors import ArgumentError, ArgumentValueError

#: What is compared for each kind of input.
EXAMPLES = {"dicts": 4300, "definitions": 700, "no clusters": 60}
#: What TensorFlow raises and ours does not: it raises a plain ValueError.
PLAIN_VALUE_ERRORS = (UnicodeError, OverflowError)
#: The same inputs in every run, so that each kind of error is among them.
SAME: dict[str, Any] = {
    "phases": (Phase.generate, Phase.shrink),
    "derandomize": os.environ.get("HYPOTHESIS") != "random",
    "deadline": None,
    "database": None,
}


def made(kind, cluster):
    """Give the ClusterSpec, or the exception that its construction raised."""
    try:
        return kind(cluster)
    except Exception as error:  # noqa: BLE001 - which one it is is the question
        return error


def deliberate(ours, theirs) -> str | None:
    """Name the deliberate difference of two outcomes; None where there is no cause for one."""
    if not isinstance(theirs, tf.train.ClusterSpec) or not isinstance(ours, ValueError):
        return None
    if any(index < 0 for job in theirs.jobs for index in theirs.task_indices(job)):
        return "a negative index"
    names = [job.name for job in theirs.as_cluster_def().job]
    return "a job named twice" if len(names) > len(set(names)) else None


def compare(ours, theirs, seen: Counter[str]) -> None:
    """Compare two ClusterSpecs, or the exceptions instead of them, and count what they were."""
    cause = deliberate(ours, theirs)
    if cause is not None:
        seen[cause] += 1
    elif isinstance(theirs, Exception):
        kind = ValueError if isinstance(theirs, PLAIN_VALUE_ERRORS) else type(theirs)
        assert isinstance(ours, kind), (ours, theirs)
        assert isinstance(ours, ArgumentError), (ours, theirs)
        seen[f"{type(theirs).__name__} by both"] += 1
    else:
        assert not isinstance(ours, Exception), (ours, theirs)
        told, expected = observed(ours), observed(theirs)
        wrong = differences(told, expected)
        assert not wrong, {name: (told[name], expected[name]) for name in wrong}
        assert (ours == theirs, theirs == ours, ours != theirs, theirs != ours) == (True, True, False, False)
        seen["equal"] += 1


def compare_copies(ours, theirs, seen: Counter[str]) -> None:
    """Compare ours and TensorFlow's that were made from a ClusterSpec of TensorFlow's: what they hold suffices."""
    cause = deliberate(ours, theirs)
    if cause is None:
        assert not isinstance(ours, Exception), (ours, theirs)
        assert (ours.jobs, ours.as_dict(), repr(ours)) == (theirs.jobs, theirs.as_dict(), repr(theirs))
        assert list(ours.as_cluster_def().job) == list(theirs.as_cluster_def().job)
    seen[f"{cause or 'equal'}, from TensorFlow's"] += 1


@pytest.mark.parametrize("share", [0.2, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_specs_agree_on_every_input(share):
    seen: Counter[str] = Counter()
    inputs: Counter[str] = Counter()

    @settings(max_examples=int(share * EXAMPLES["dicts"]), **SAME)
    @given(DICTS)
    def of_dicts(cluster):
        inputs["dict"] += 1
        ours, theirs = made(ClusterSpec, cluster), made(tf.train.ClusterSpec, cluster)
        compare(ours, theirs, seen)
        if isinstance(theirs, tf.train.ClusterSpec):
            compare_copies(made(ClusterSpec, theirs), tf.train.ClusterSpec(theirs), seen)

    @settings(max_examples=int(share * EXAMPLES["definitions"]), **SAME)
    @given(DEFINITIONS)
    def of_definitions(definition):
        inputs["ClusterDef"] += 1
        theirs = tf.train.ClusterSpec(definition)
        compare(made(ClusterSpec, definition), theirs, seen)
        compare(made(ClusterSpec, in_our_pool(definition)), theirs, seen)

    @settings(max_examples=int(share * EXAMPLES["no clusters"]), **SAME)
    @given(NO_CLUSTERS)
    def of_no_clusters(value):
        inputs["no cluster"] += 1
        compare(made(ClusterSpec, value), made(tf.train.ClusterSpec, value), seen)

    of_dicts()
    of_definitions()
    of_no_clusters()

    print(f"{sum(inputs.values())} inputs {dict(inputs)}, compared: {dict(seen)}")  # noqa: T201 - the count is the report
    assert sum(inputs.values()) >= share * 5000
    kinds = {"equal", "a negative index", "a job named twice"}
    assert kinds | {f"{name} by both" for name in ("TypeError", "ValueError", "OverflowError")} <= set(seen)


# The deliberate differences: what TensorFlow does, and what we do instead.


def test_negative_index_is_lost_by_tensorflow_and_refused_by_us():
    """TensorFlow takes negative indices and loses addresses, or fails later; ours refuses them at once."""
    assert tf.train.ClusterSpec({"w": {-1: "x:1", 1: "y:2"}}).as_dict() == {"w": [None, "y:2"]}
    with pytest.raises(IndexError):
        repr(tf.train.ClusterSpec({"w": {-5: "x:1", 1: "y:2"}}))
    for tasks in ({-1: "x:1", 1: "y:2"}, {-5: "x:1", 1: "y:2"}):
        with pytest.raises(ValueError, match="below 0"):
            ClusterSpec({"w": tasks})


def test_job_named_twice_is_half_seen_by_tensorflow_and_refused_by_us():
    """Of a job that a ClusterDef names twice, TensorFlow's dict view has the last and its message both."""
    message = tf.train.ClusterDef(job=[{"name": "w", "tasks": {0: "a:1"}}, {"name": "w", "tasks": {0: "b:2"}}])
    theirs = tf.train.ClusterSpec(message)
    assert (theirs.as_dict(), len(theirs.as_cluster_def().job)) == ({"w": ["b:2"]}, 2)
    with pytest.raises(ValueError, match="twice"):
        ClusterSpec(message)


def test_message_is_shared_by_tensorflow_and_copied_by_us():
    message = tf.train.ClusterDef(job=[{"name": "w", "tasks": {0: "a:1"}}])
    theirs, ours = tf.train.ClusterSpec(message), ClusterSpec(message)
    message.job[0].tasks[0] = "z:9"
    assert (theirs.as_dict(), theirs.as_cluster_def().job[0].tasks[0]) == ({"w": ["a:1"]}, "z:9")
    assert (ours.as_dict(), ours.as_cluster_def().job[0].tasks[0]) == ({"w": ["a:1"]}, "a:1")
    assert theirs.as_cluster_def() is theirs.as_cluster_def()
    assert ours.as_cluster_def() is not ours.as_cluster_def()


def test_unknown_fields_are_kept_by_tensorflow_and_dropped_by_us():
    message = tf.train.ClusterDef.FromString(b"\xa0\x06\x01")
    assert tf.train.ClusterSpec(message).as_cluster_def().SerializeToString() == b"\xa0\x06\x01"
    assert ClusterSpec(message).as_cluster_def().SerializeToString() == b""


@pytest.mark.parametrize(
    ("provoke", "error", "theirs", "ours"),
    [
        (
            lambda kind: kind({"w": []}).job_tasks("w"),
            ValueError,
            "iterable argument is empty|empty sequence",
            "no tasks",
        ),
        (lambda kind: kind({("a", "b"): 3}), TypeError, "string formatting", r"\('a', 'b'\)"),
        (lambda kind: kind({"w": [("a", "b")]}), TypeError, "string formatting", r"\('a', 'b'\)"),
    ],
)
def test_odd_errors_of_tensorflow_have_words_in_ours(provoke, error, theirs, ours):
    """Where TensorFlow fails by accident, ours fails with the same type and says what is wrong."""
    with pytest.raises(error, match=theirs):
        provoke(tf.train.ClusterSpec)
    with pytest.raises(error, match=ours):
        provoke(ClusterSpec)


def test_our_spec_is_taken_by_tensorflow_as_a_dict_or_message():
    """TensorFlow's class takes the dict and the message of ours, and not ours itself; ours takes TensorFlow's."""
    ours = ClusterSpec({"w": {1: "a:1"}})
    with pytest.raises(TypeError):
        tf.train.ClusterSpec(ours)
    assert tf.train.ClusterSpec(ours.as_dict()) == tf.train.ClusterSpec(ours.as_cluster_def()) == ours
    assert ClusterSpec(tf.train.ClusterSpec({"w": {1: "a:1"}})) == ours


@pytest.mark.parametrize(
    ("cluster", "error"),
    [
        ({"w": [b"\xff"]}, UnicodeDecodeError),
        ({"\ud800": []}, UnicodeEncodeError),
        ({"w": {float("inf"): "a:1"}}, OverflowError),
    ],
)
def test_no_utf8_and_infinity_are_plain_value_errors_in_ours(cluster, error):
    """TensorFlow lets Python's own error of the conversion through; ours is a ValueError that names the place."""
    with pytest.raises(error):
        tf.train.ClusterSpec(cluster)
    with pytest.raises(ArgumentValueError, match=r"job"):
        ClusterSpec(cluster)


def test_list_with_many_gaps_is_made_by_tensorflow_and_refused_by_us():
    """A job of one task with a high index is a long list of nothing in TensorFlow; ours refuses above a million."""
    cluster = {"w": {1_000_001: "a:1"}}
    assert tf.train.ClusterSpec(cluster).job_tasks("w").count(None) == 1_000_001
    with pytest.raises(ArgumentValueError, match="too many gaps"):
        ClusterSpec(cluster).job_tasks("w")
    assert ClusterSpec(cluster).as_dict() == cluster
    assert len(ClusterSpec({"w": {1_000_000: "a:1"}}).job_tasks("w")) == 1_000_001
