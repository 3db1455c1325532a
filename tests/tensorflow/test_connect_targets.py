"""What connecting makes of its arguments, with TensorFlow's own classes; nothing is connected here."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfcluster_resolver import ClusterSpec, TFClusterResolver, connect_to_cluster
from tfcluster_resolver.connect.target import Target, target_of
from tfcluster_resolver.errors import ArgumentError, ConnectError, CoordinatorNotInClusterError, NoSuchTaskError

JOBS = {"chief": ["h:22"], "worker": ["h:222", "h:2222"], "ps": {1: "p1:1"}}
FILTERS = {"worker": {0: ("/job:ps",), 3: ("/job:ps", "/job:chief")}}


def target(cluster, **given) -> Target | None:
    """Work out the target of a call with these arguments."""
    defaults = {"job": None, "index": None, "protocol": None, "filters": None, "master": True}
    return target_of(cluster, **(defaults | given))


def simple(master: str, **options) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Make a resolver of TensorFlow's own."""
    spec = tf.train.ClusterSpec(JOBS)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, master=master, **options)


@pytest.mark.parametrize("spec", [tf.train.ClusterSpec(JOBS), ClusterSpec(JOBS)], ids=["theirs", "ours"])
def test_spec_has_tensorflows_defaults(spec):
    """With a ClusterSpec of either package this process is task 0 of "localhost", and has no default device."""
    found = target(spec)

    assert (found.spec, found.job, found.index, found.protocol) == (tf.train.ClusterSpec(JOBS), "localhost", 0, None)
    assert (found.filters, found.master, found.inside) == ({}, None, False)
    assert sorted(found.others()) == [
        ("chief", 0, "h:22"),
        ("ps", 1, "p1:1"),
        ("worker", 0, "h:222"),
        ("worker", 1, "h:2222"),
    ]


def test_own_task_is_not_waited_for():
    found = target(tf.train.ClusterSpec(JOBS), job="worker", index=1)
    assert found.inside
    assert ("worker", 1, "h:2222") not in found.others()
    assert len(found.others()) == 3


def test_own_resolver_gives_task_filters_and_protocol():
    """A TFClusterResolver gives its own task, its rpc layer, its filters, and itself as the default device."""
    resolver = TFClusterResolver.from_spec(JOBS, "chief", 0, rpc_layer="grpc+x", device_filters=FILTERS)

    found = target(resolver)

    assert (found.job, found.index, found.protocol, found.master) == ("chief", 0, "grpc+x", ("chief", 0))
    assert found.filters == FILTERS
    assert target(resolver, master=False).master is None
    assert target(resolver, filters={}).filters == {}
    assert target(resolver, protocol="other").protocol == "other"


def test_master_is_matched_exactly():
    """The master is the task of that very address: TensorFlow takes the last one that contains it or is in it."""
    own = [target(TFClusterResolver.from_spec(JOBS, "worker", index)).master for index in (0, 1)]
    assert own == [("worker", 0), ("worker", 1)]
    assert target(simple("grpc://h:222")).master == ("worker", 0)
    assert target(simple("h:22")).master == ("chief", 0)


def test_master_of_a_users_subclass_counts():
    class Elsewhere(TFClusterResolver):
        def master(self, task_type=None, task_id=None, rpc_layer=None):
            del task_type, task_id, rpc_layer
            return "grpc://p1:1"

    assert target(Elsewhere.from_spec(JOBS, "chief", 0)).master == ("ps", 1)


@pytest.mark.parametrize("master", ["h:2", "grpc://", "nobody:1"])
def test_master_that_is_nobody_is_refused(master):
    with pytest.raises(ConnectError, match="is not the address of any task"):
        target(simple(master))
    assert target(simple(master), master=False).master is None


@pytest.mark.parametrize("master", ["", "local"])
def test_local_resolver_is_nothing_to_connect_to(master):
    """A resolver of TensorFlow's whose master is empty or "local" connects to nothing, as in TensorFlow."""
    assert target(simple(master)) is None
    connect_to_cluster(simple(master))


@pytest.mark.parametrize("cluster", [JOBS, tf.train.ClusterSpec(JOBS).as_cluster_def(), None, "h:22"])
def test_what_is_no_cluster_is_refused(cluster):
    """A dict or a ClusterDef is refused as in TensorFlow; the error names the class method that takes it."""
    with pytest.raises(ArgumentError, match=r"from_spec\(\) takes a dict or a ClusterDef"):
        connect_to_cluster(cluster)


def test_filters_of_every_kind_are_read():
    theirs = tf.config.experimental.ClusterDeviceFilters()
    for index, texts in FILTERS["worker"].items():
        theirs.set_device_filters("worker", index, list(texts))
    for filters in (theirs, theirs._as_cluster_device_filters(), FILTERS):
        assert target(tf.train.ClusterSpec(JOBS), filters=filters).filters == FILTERS


def test_tensorflows_classes_make_a_resolver():
    theirs = tf.config.experimental.ClusterDeviceFilters()
    theirs.set_device_filters("worker", 0, ["/job:ps"])
    spec = tf.train.ClusterSpec(JOBS)

    for cluster in (spec, spec.as_cluster_def(), JOBS):
        resolver = TFClusterResolver.from_spec(cluster, "chief", 0, device_filters=theirs)
        assert type(resolver.cluster_spec()) is tf.train.ClusterSpec
        assert resolver.cluster_spec() == spec
        assert isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver)
        made = resolver.device_filters()._as_cluster_device_filters()
        assert made == theirs._as_cluster_device_filters()


@pytest.mark.parametrize("given", [{"job": "worker", "index": 2}, {"job": "ps"}, {"index": 1}])
def test_task_that_cannot_be_is_refused(given):
    """A process is a task that the ClusterSpec has, or task 0 of a job that it has not."""
    with pytest.raises(NoSuchTaskError):
        target(tf.train.ClusterSpec(JOBS), **given)


@pytest.mark.parametrize("task", [(), ("evaluator", 0), ("chief", 3)])
def test_resolver_without_a_place_in_the_cluster_is_refused(task):
    """A TFClusterResolver whose task is unknown or not in the ClusterSpec needs an explicit job outside of it."""
    resolver = TFClusterResolver.from_spec(JOBS, *task)
    with pytest.raises(CoordinatorNotInClusterError, match="job_name='localhost'"):
        target(resolver)
    assert not target(resolver, job="localhost").inside


def test_process_outside_of_its_own_resolvers_job_is_task_0():
    """A job that is given and is not the resolver's own has index 0, whatever the resolver's is."""
    found = target(TFClusterResolver.from_spec(JOBS, "worker", 1), job="localhost")
    assert (found.job, found.index, found.master) == ("localhost", 0, ("worker", 1))


def test_graphs_and_functions_cannot_connect():
    spec = tf.train.ClusterSpec(JOBS)
    with pytest.raises(ArgumentError, match="eager mode only"), tf.Graph().as_default():
        connect_to_cluster(spec, timeout=0)
    with pytest.raises(ArgumentError, match="eager mode only"):
        tf.function(lambda: connect_to_cluster(spec, timeout=0))()


def test_unknown_way_with_a_change_is_refused():
    with pytest.raises(ArgumentError, match='"refuse", "reset" or "update"'):
        connect_to_cluster(tf.train.ClusterSpec(JOBS), on_change="ignore")


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
def test_arguments_of_other_types_are_refused(arguments):
    with pytest.raises(ArgumentError):
        connect_to_cluster(tf.train.ClusterSpec({}), **arguments)
