"""The resolver is TensorFlow's for any order of imports, and returns TensorFlow's own classes."""

import inspect

import tensorflow as tf

from tfcluster_resolver import TFClusterResolver

CHECK = """
base = tf.distribute.cluster_resolver.ClusterResolver
resolver = TFClusterResolver()
print(isinstance(resolver, base), isinstance(resolver.snapshot(), base), issubclass(TFClusterResolver, base))
print(type(resolver) is TFClusterResolver, issubclass(type("Mine", (TFClusterResolver,), {}), base))
"""
OURS = "import sys\nfrom tfcluster_resolver import TFClusterResolver\nassert 'tensorflow' not in sys.modules\n"
READ = """
resolver = TFClusterResolver()
resolver.snapshot().membership().jobs(), resolver.master(), resolver.num_accelerators(), resolver.epoch, repr(resolver)
list(resolver.watch(timeout=0))
"""


def test_resolver_is_tensorflows_when_ours_comes_first(make_cluster):
    """Afterwards our import hook is removed, and TensorFlow's loader is unchanged."""
    ours = "print(['tfcluster_resolver' in type(one).__module__ for one in sys.meta_path].count(True))\n"
    text = OURS + ours + "early = TFClusterResolver()\nimport tensorflow as tf\n" + ours
    text += "print(vars(tf.__loader__).keys() & {'exec_module'})\n" + CHECK + "print(isinstance(early, base))\n"
    printed = make_cluster(jobs={"chief": 1}).program(text, fresh=True)
    assert printed == "1\n0\nset()\nTrue True True\nTrue True\nTrue\n"


def test_reading_a_view_does_not_import_tensorflow(make_cluster):
    loaded = "print('tensorflow' in sys.modules)\n"
    text = OURS + READ + loaded + "resolver.cluster_spec()\n" + loaded
    assert make_cluster(jobs={"chief": 1}).program(text, fresh=True) == "False\nTrue\n"


def test_resolver_has_all_that_tensorflows_class_has():
    """It inherits nothing from TensorFlow's class, so it must define each public name, with the same signature."""
    theirs = {k: v for k, v in vars(tf.distribute.cluster_resolver.ClusterResolver).items() if not k.startswith("_")}

    for name, value in theirs.items():
        ours = inspect.getattr_static(TFClusterResolver, name)
        assert isinstance(ours, property) == isinstance(value, property), name
        if isinstance(value, property):
            assert (ours.fset is None) == (value.fset is None), name
        else:
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(value).parameters), name


def test_union_resolver_takes_it():
    """Its spec is new each time, so that a caller's change does not reach another one."""
    ours = TFClusterResolver.from_spec({"chief": ["h:1"]}, "chief", 0)
    other = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({"more": ["h:2"]}))
    union = tf.distribute.cluster_resolver.UnionResolver(ours, other)
    assert union.cluster_spec().as_dict() == {"chief": ["h:1"], "more": ["h:2"]}
    assert union.master() == "grpc://h:1"
    assert ours.cluster_spec().as_cluster_def() is not ours.cluster_spec().as_cluster_def()
