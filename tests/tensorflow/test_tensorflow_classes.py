"""The resolver is TensorFlow's, whichever package comes first, and gives TensorFlow's own classes."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from pathlib import Path

import pytest
from loopback_cluster import LoopbackCluster

from tfcluster_resolver import TFClusterResolver

CHECK = """
base = tf.distribute.cluster_resolver.ClusterResolver
resolver = TFClusterResolver()
print(isinstance(resolver, base), isinstance(resolver.snapshot(), base), issubclass(TFClusterResolver, base))
print(type(resolver) is TFClusterResolver, issubclass(type("Mine", (TFClusterResolver,), {}), base))
"""
OURS = "import sys\nfrom tfcluster_resolver import TFClusterResolver\nassert 'tensorflow' not in sys.modules\n"
THEIRS = "import tensorflow as tf\n"
READ = """
resolver = TFClusterResolver()
resolver.snapshot().membership().jobs(), resolver.master(), resolver.num_accelerators(), resolver.epoch, repr(resolver)
list(resolver.watch(timeout=0))
"""
MEANWHILE = """
import sys, threading

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow.python":
            begun.set()
            ended.wait(1)  # our import waits for TensorFlow's, so this times out

sys.meta_path.insert(0, Slow())
begun, ended = threading.Event(), threading.Event()
other = threading.Thread(target=__import__, args=["tensorflow"])
other.start()
begun.wait()
from tfcluster_resolver import TFClusterResolver
ended.set()
other.join()
import tensorflow as tf
print(isinstance(TFClusterResolver(), tf.distribute.cluster_resolver.ClusterResolver))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> LoopbackCluster:
    return LoopbackCluster(
        tmp_path_factory.mktemp("written"),
        {"chief": 1, "worker": 12, "ps": 1},
        filters={"worker": ("/job:ps", "/job:chief")},
        limits={"worker": {"nvidia.com/gpu": 2}},
    )


@pytest.fixture
def as_chief(cluster: LoopbackCluster, monkeypatch) -> TFClusterResolver:
    """The resolver of the chief, in this process."""
    for name, value in cluster.environment("chief", 0).items():
        if name.startswith("TFCLUSTER_"):
            monkeypatch.setenv(name, value)
    return TFClusterResolver()


def test_resolver_is_tensorflows_when_tensorflow_comes_first(cluster):
    assert cluster.program(THEIRS + OURS.splitlines()[1] + CHECK) == "True True True\nTrue True\n"


def test_resolver_is_tensorflows_when_ours_comes_first(cluster):
    """So is one from before the program's own ``import tensorflow``, which leaves no trace.

    Afterwards nothing of ours listens to imports, and TensorFlow's loader is as it was.
    """
    ours = "print(['tfcluster_resolver' in type(one).__module__ for one in sys.meta_path].count(True))\n"
    text = OURS + ours + "early = TFClusterResolver()\n" + THEIRS + ours
    text += "print(vars(tf.__loader__).keys() & {'exec_module'})\n" + CHECK + "print(isinstance(early, base))\n"
    assert cluster.program(text, fresh=True) == "1\n0\nset()\nTrue True True\nTrue True\nTrue\n"


def test_reading_alone_imports_no_tensorflow(cluster):
    loaded = "print('tensorflow' in sys.modules)\n"
    assert cluster.program(OURS + READ + loaded + "resolver.cluster_spec()\n" + loaded, fresh=True) == "False\nTrue\n"


def test_resolver_made_while_another_thread_imports_tensorflow_is_tensorflows(cluster):
    """Our import beside TensorFlow's in another thread misses nothing."""
    assert cluster.program(MEANWHILE, fresh=True) == "True\n"


def test_resolver_has_all_that_tensorflows_class_has():
    """It inherits nothing from TensorFlow's class, so each public name of that class is its own, and called alike."""
    import tensorflow as tf

    theirs = {k: v for k, v in vars(tf.distribute.cluster_resolver.ClusterResolver).items() if not k.startswith("_")}

    for name, value in theirs.items():
        ours = inspect.getattr_static(TFClusterResolver, name)
        assert isinstance(ours, property) == isinstance(value, property), name
        if isinstance(value, property):
            assert (ours.fset is None) == (value.fset is None), name
        else:
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(value).parameters), name


@pytest.mark.usefixtures("as_chief")
def test_subclass_of_a_user_is_tensorflows():
    import tensorflow as tf

    class Mine(TFClusterResolver):
        """A user's."""

        @property
        def environment(self) -> str:
            return "mine"

    mine = Mine()

    assert isinstance(mine, tf.distribute.cluster_resolver.ClusterResolver)
    assert isinstance(mine.snapshot(), Mine)
    assert (type(mine).__name__, mine.snapshot().environment) == ("Mine", "mine")


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],  # noqa: S301 - our own bytes
)
def test_copies_are_whole(as_chief, duplicate):
    other = duplicate(as_chief)
    assert type(other) is type(as_chief)
    assert other.cluster_spec() == as_chief.cluster_spec()
    assert other.task_type == "chief"


def test_spec_is_tensorflows_own(as_chief, cluster):
    """``cluster_spec()`` gives a new ``tf.train.ClusterSpec`` each time, so that nobody's change reaches another."""
    import tensorflow as tf

    spec = as_chief.cluster_spec()
    assert type(spec) is tf.train.ClusterSpec
    assert spec.as_dict() == cluster.addresses
    assert as_chief.cluster_spec().as_cluster_def() is not spec.as_cluster_def()


def test_filters_reach_beyond_the_present_tasks(as_chief):
    definition = as_chief.device_filters()._as_cluster_device_filters()
    told = {job.name: {index: list(one.device_filters) for index, one in job.tasks.items()} for job in definition.jobs}
    assert told == {"worker": {index: ["/job:ps", "/job:chief"] for index in range(14)}}


def test_union_resolver_takes_it(as_chief, cluster):
    import tensorflow as tf

    other = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({"more": ["h:1"]}))
    union = tf.distribute.cluster_resolver.UnionResolver(as_chief, other)
    assert union.cluster_spec().as_dict() == cluster.addresses | {"more": ["h:1"]}
    assert union.master() == f"grpc://{cluster.addresses['chief'][0]}"


def test_example_views_are_what_tensorflow_takes(cluster):
    """``show --json`` prints jobs that ``tf.train.ClusterSpec`` takes as they are, also after JSON."""
    import tensorflow as tf

    shown = json.loads(cluster.run("worker", 3, "-m", "tfcluster_resolver", "show", "--json").stdout)
    assert tf.train.ClusterSpec(shown["jobs"]) == tf.train.ClusterSpec(cluster.addresses)


def test_written_view_is_read_by_every_task(cluster, tmp_path: Path):
    """A worker that its own filters do not hide, and one beyond the published tasks, both find themselves."""
    lone = LoopbackCluster(tmp_path / "lone", {"worker": 1})
    index = lone.add_task("worker")
    assert json.loads(lone.run("worker", index, "-m", "tfcluster_resolver", "show", "--json").stdout)["jobs"] == {
        "worker": lone.addresses["worker"]
    }
    assert cluster.addresses["worker"][11] in cluster.run("worker", 11, "-m", "tfcluster_resolver", "show").stdout
