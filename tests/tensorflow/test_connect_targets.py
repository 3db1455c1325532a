"""How connecting interprets its arguments, with TensorFlow's own classes; nothing is connected here."""

import pytest
import tensorflow as tf
from resolver.resolver_world import SETTINGS, speaker

from tfcluster_resolver import ClusterSpec, TFClusterResolver, connect_to_cluster
from tfcluster_resolver.connect.target import Target, target_of
from tfcluster_resolver.errors import (
    ArgumentError,
    ConnectError,
    CoordinatorNotInClusterError,
    NoSuchTaskError,
    PortTakenError,
)

JOBS = {"chief": ["h:22"], "worker": ["h:222", "h:2222"], "ps": {1: "p1:1"}}
SPEC = tf.train.ClusterSpec(JOBS)
TASKS = [("chief", 0, "h:22"), ("ps", 1, "p1:1"), ("worker", 0, "h:222"), ("worker", 1, "h:2222")]
FILTERS = {"worker": {0: ("/job:ps",), 3: ("/job:ps", "/job:chief")}}


def target(cluster, **given) -> Target | None:
    defaults = {"job": None, "index": None, "protocol": None, "filters": None, "master": True}
    return target_of(cluster, **(defaults | given))


def simple(master: str) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(SPEC, master=master)


class Elsewhere(TFClusterResolver):
    """A user's resolver, whose master is another task."""

    def master(self, task_type=None, task_id=None, rpc_layer=None):
        del task_type, task_id, rpc_layer
        return "grpc://p1:1"


OWN = TFClusterResolver.from_spec(JOBS, "chief", 0, rpc_layer="grpc+x", device_filters=FILTERS)
WORKERS = [TFClusterResolver.from_spec(JOBS, "worker", index) for index in (0, 1)]
NOBODY = ("localhost", 0)


@pytest.mark.parametrize(
    ("cluster", "given", "task", "more"),
    [
        (SPEC, {}, NOBODY, (None, {}, None)),
        (ClusterSpec(JOBS), {}, NOBODY, (None, {}, None)),
        (SPEC, {"job": "worker", "index": 1}, ("worker", 1), (None, {}, None)),
        (OWN, {}, ("chief", 0), ("grpc+x", FILTERS, ("chief", 0))),
        (OWN, {"master": False}, ("chief", 0), ("grpc+x", FILTERS, None)),
        (OWN, {"filters": {}}, ("chief", 0), ("grpc+x", {}, ("chief", 0))),
        (OWN, {"protocol": "other"}, ("chief", 0), ("other", FILTERS, ("chief", 0))),
        (WORKERS[0], {}, ("worker", 0), ("grpc", {}, ("worker", 0))),
        (WORKERS[1], {}, ("worker", 1), ("grpc", {}, ("worker", 1))),
        (WORKERS[1], {"job": "localhost"}, NOBODY, ("grpc", {}, ("worker", 1))),
        (Elsewhere.from_spec(JOBS, "chief", 0), {}, ("chief", 0), ("grpc", {}, ("ps", 1))),
        (simple("grpc://h:222"), {}, NOBODY, (None, {}, ("worker", 0))),
        (simple("h:22"), {}, NOBODY, (None, {}, ("chief", 0))),
        (simple("grpc://"), {}, NOBODY, (None, {}, None)),
    ],
)
def test_own_resolver_gives_task_filters_and_protocol(cluster, given, task, more):
    """The master is the task with exactly that address, where TensorFlow also takes one that contains it."""
    found = target(cluster, **given)
    assert (found.protocol, found.filters, found.master) == more
    assert (found.job, found.index, found.spec, found.inside) == (*task, SPEC, task != NOBODY)
    assert sorted(found.others()) == [one for one in TASKS if one[:2] != task]


@pytest.mark.parametrize("master", ["h:2", "grpc://h", "nobody:1"])
def test_unknown_master_is_rejected(master):
    with pytest.raises(ConnectError, match="is not the address of any task"):
        target(simple(master))
    assert target(simple(master), master=False).master is None


@pytest.mark.parametrize("master", ["", "local"])
def test_local_resolver_does_not_connect(master):
    """A resolver of TensorFlow's whose master is empty or "local" connects to nothing, as in TensorFlow."""
    assert target(simple(master)) is None
    connect_to_cluster(simple(master))


@pytest.mark.parametrize("cluster", [JOBS, SPEC.as_cluster_def(), None, "h:22"])
def test_dict_or_cluster_def_is_rejected(cluster):
    """A dict or a ClusterDef is rejected as in TensorFlow; the error names the class method for it."""
    with pytest.raises(ArgumentError, match=r"from_spec\(\) takes a dict or a ClusterDef"):
        connect_to_cluster(cluster)


def test_tensorflows_classes_are_read_and_made():
    theirs = tf.config.experimental.ClusterDeviceFilters()
    for index, texts in FILTERS["worker"].items():
        theirs.set_device_filters("worker", index, list(texts))
    for filters in (theirs, theirs._as_cluster_device_filters(), FILTERS):
        assert target(SPEC, filters=filters).filters == FILTERS
    for cluster in (SPEC, SPEC.as_cluster_def(), JOBS):
        resolver = TFClusterResolver.from_spec(cluster, "chief", 0, device_filters=theirs)
        assert type(resolver.cluster_spec()) is tf.train.ClusterSpec
        assert resolver.cluster_spec() == SPEC
        assert isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver)
        made = resolver.device_filters()._as_cluster_device_filters()
        assert made == theirs._as_cluster_device_filters()


@pytest.mark.parametrize("given", [{"job": "worker", "index": 2}, {"job": "ps"}, {"index": 1}])
def test_task_outside_the_cluster_is_rejected(given):
    """A process is a task in the ClusterSpec, or task 0 of a job outside of it."""
    with pytest.raises(NoSuchTaskError):
        target(SPEC, **given)


@pytest.mark.parametrize("task", [(), ("evaluator", 0), ("chief", 3)])
def test_resolver_without_a_task_needs_an_explicit_job(task):
    """A TFClusterResolver whose task is unknown or not in the ClusterSpec needs an explicit job outside of it."""
    resolver = TFClusterResolver.from_spec(JOBS, *task)
    with pytest.raises(CoordinatorNotInClusterError, match="job_name='localhost'"):
        target(resolver)
    assert not target(resolver, job="localhost").inside


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (SETTINGS, r"a task server listens already.*and not `python -m tfcluster_resolver serve`"),
        (b"", "another program"),
    ],
    ids=["a server", "another program"],
)
def test_own_port_in_use_is_rejected(answer, words):
    """If the chief's pod already serves, the error comes before TensorFlow's, and before any task is waited for."""
    with speaker(answer, closes=True) as address:
        resolver = TFClusterResolver.from_spec({"chief": [address], "worker": ["nowhere.invalid:1"]}, "chief", 0)
        with pytest.raises(PortTakenError, match=rf"to connect as /job:chief/task:0, .*{words}"):
            connect_to_cluster(resolver)


def test_graphs_and_functions_cannot_connect():
    with pytest.raises(ArgumentError, match="eager mode only"), tf.Graph().as_default():
        connect_to_cluster(SPEC, timeout=0)
    with pytest.raises(ArgumentError, match="eager mode only"):
        tf.function(lambda: connect_to_cluster(SPEC, timeout=0))()


@pytest.mark.parametrize(
    "arguments",
    [
        *({"timeout": value} for value in (None, -1, float("nan"), "5", True)),
        *({"on_change": value} for value in (None, [], "update!")),
        *({"job_name": value} for value in (1, b"chief", ["chief"])),
        *({"task_index": value} for value in ("0", 0.0, True, [])),
        *({"protocol": value} for value in (1, b"grpc")),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(arguments):
    with pytest.raises(ArgumentError, match=next(iter(arguments))):
        connect_to_cluster(tf.train.ClusterSpec({}), **arguments)
