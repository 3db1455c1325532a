"""Our ClusterSpec tells of every input what TensorFlow's tells; deliberate differences are known by their cause."""

from __future__ import annotations

from collections import Counter

import tensorflow as tf
from cluster_inputs import DEFINITIONS, DICTS, NO_CLUSTERS, differences, in_our_pool, observed
from hypothesis import Phase, given, settings

from tfcluster_resolver.cluster_spec import ClusterSpec

#: What is compared for each kind of input.
EXAMPLES = {"dicts": 4300, "definitions": 700, "no clusters": 60}
PHASES = (Phase.generate, Phase.shrink)


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
        assert isinstance(ours, type(theirs)), (ours, theirs)
        seen[f"{type(theirs).__name__} by both"] += 1
    else:
        assert not isinstance(ours, Exception), (ours, theirs)
        told, expected = observed(ours), observed(theirs)
        wrong = differences(told, expected)
        assert not wrong, {name: (told[name], expected[name]) for name in wrong}
        assert (ours == theirs, theirs == ours, ours != theirs, theirs != ours) == (True, True, False, False)
        seen["equal"] += 1


def test_specs_agree_on_every_input():
    """5,000 dicts, ClusterDefs, ClusterSpecs and other things make the same ClusterSpec, or the same exception."""
    seen: Counter[str] = Counter()
    inputs: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES["dicts"], phases=PHASES, deadline=None, database=None)
    @given(DICTS)
    def of_dicts(cluster):
        inputs["dict"] += 1
        ours, theirs = made(ClusterSpec, cluster), made(tf.train.ClusterSpec, cluster)
        compare(ours, theirs, seen)
        if isinstance(theirs, tf.train.ClusterSpec):
            # Ours takes TensorFlow's as TensorFlow takes its own.
            compare(made(ClusterSpec, theirs), tf.train.ClusterSpec(theirs), seen)

    @settings(max_examples=EXAMPLES["definitions"], phases=PHASES, deadline=None, database=None)
    @given(DEFINITIONS)
    def of_definitions(definition):
        inputs["ClusterDef"] += 1
        theirs = tf.train.ClusterSpec(definition)
        compare(made(ClusterSpec, definition), theirs, seen)
        compare(made(ClusterSpec, in_our_pool(definition)), theirs, seen)

    @settings(max_examples=EXAMPLES["no clusters"], phases=PHASES, deadline=None, database=None)
    @given(NO_CLUSTERS)
    def of_no_clusters(value):
        inputs["no cluster"] += 1
        compare(made(ClusterSpec, value), made(tf.train.ClusterSpec, value), seen)

    of_dicts()
    of_definitions()
    of_no_clusters()

    print(f"{sum(inputs.values())} inputs {dict(inputs)}, compared: {dict(seen)}")  # noqa: T201 - the count is the report
    assert sum(inputs.values()) >= 5000
    kinds = {"equal", "a negative index", "a job named twice"}
    assert kinds | {f"{name} by both" for name in ("TypeError", "ValueError", "OverflowError")} <= set(seen)
