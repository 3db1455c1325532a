"""Where the resolver and connect_to_cluster differ from TensorFlow's on purpose: what TensorFlow does, what we do."""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import nullcontext

import pytest
import tensorflow as tf
from loopback_cluster import LoopbackCluster
from tensorflow.python.distribute.cluster_resolver import cluster_resolver as theirs
from tensorflow.python.eager import remote
from unit.resolver_world import GPU, publish, view_of

from tfcluster_resolver import TFClusterResolver, contract
from tfcluster_resolver.connect.target import target_of
from tfcluster_resolver.errors import NoSuchTaskError


class Bare(tf.distribute.cluster_resolver.ClusterResolver):
    """The least that TensorFlow's abstract class asks for."""

    def cluster_spec(self):
        return tf.train.ClusterSpec({"worker": {1: "a:1", 10: "b:1"}})

    def master(self, task_type=None, task_id=None, rpc_layer=None):
        del task_type, task_id, rpc_layer
        return "grpc://a:1"


@pytest.fixture
def granted(tmp_path) -> TFClusterResolver:
    """The resolver of a process that is no task: worker 1 was granted two GPUs, worker 10 one."""
    held = {"worker": contract.JobAccelerators(limits={GPU: 2}, tasks={10: {GPU: 1}})}
    publish(tmp_path, view_of({"worker": {1: "a:1", 10: "b:1"}}, accelerators=held))
    return TFClusterResolver.from_file(tmp_path / "cluster.json")


# The deliberate differences: what TensorFlow does, and what we do instead.


def test_rpc_layer_is_missing_in_tensorflows_class_and_always_there_in_ours(granted):
    """Strategies read ``rpc_layer``, which the abstract class does not have: so short a resolver fails there."""
    assert not hasattr(Bare(), "rpc_layer")
    assert granted.rpc_layer == "grpc"


@pytest.mark.parametrize(
    "resolver",
    [
        tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({"worker": ["a:1", "b:1"]})),
        tf.distribute.cluster_resolver.TFConfigClusterResolver(),
    ],
    ids=["Simple", "TFConfig"],
)
def test_unknown_master_is_empty_in_tensorflow_and_an_error_in_ours(resolver, granted):
    """An empty master makes TensorFlow's connect return without connecting, and without a word."""
    assert resolver.master() == ""
    assert tf.config.experimental_connect_to_cluster(resolver) is None
    with pytest.raises(NoSuchTaskError, match="needs task_type and task_id"):
        granted.master()


def test_accelerators_are_matched_by_substring_in_tensorflow_and_exactly_by_us(monkeypatch, granted):
    """TensorFlow's task 1 has the devices of task 10 too, and a job without an index those of the whole cluster."""
    names = [f"/job:worker/replica:0/task:{task}/device:GPU:{index}" for task, index in ((1, 0), (1, 1), (10, 0))]
    devices = [tf.config.LogicalDevice(name, "GPU") for name in [*names, "/job:ps/replica:0/task:0/device:GPU:0"]]
    monkeypatch.setattr(theirs, "get_accelerator_devices", lambda *_: devices)
    assert Bare().num_accelerators("worker", 1) == Counter(GPU=3)
    assert granted.num_accelerators("worker", 1) == Counter(GPU=2)
    assert Bare().num_accelerators("worker") == Counter(GPU=4)
    with pytest.raises(NoSuchTaskError, match="give both or neither"):
        granted.num_accelerators("worker")


#: Each line says how TensorFlow's runtime is after a question.
ASK = """
import json, os
import tensorflow as tf
from tensorflow.python.eager import context
from tfcluster_resolver import TFClusterResolver
started = []
TFClusterResolver().num_accelerators()
started.append(context.context()._initialized)
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})
tf.distribute.cluster_resolver.TFConfigClusterResolver().num_accelerators()
started.append(context.context()._initialized)
print(json.dumps(started))
"""


def test_counting_starts_tensorflows_runtime_and_not_by_us(make_cluster):
    """To count, TensorFlow starts its runtime, after which threads, memory growth and the like cannot be set."""
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2})
    assert json.loads(cluster.program(ASK, "worker", 0)) == [False, True]


#: Connects by TensorFlow's own function to a cluster of which nobody listens.
TO_NOBODY = """
import json, sys
import tensorflow as tf
from tensorflow.python.eager import context
from tfcluster_resolver import TFClusterResolver, connect_to_cluster
from tfcluster_resolver.errors import TasksUnreachableError
cluster = TFClusterResolver().snapshot()
told = {}
try:
    connect_to_cluster(cluster, timeout=0)
except TasksUnreachableError as error:
    told["ours"] = [str(one.address) for one in error.missing]
told["ours connected"] = context.get_server_def() is not None
tf.config.experimental_connect_to_cluster(cluster.cluster_spec(), "chief", 0)
told["theirs connected"] = context.get_server_def() is not None
told["theirs started"] = context.context()._initialized
print(json.dumps(told), flush=True)
import os
os._exit(0)
"""


def test_connecting_is_put_off_by_tensorflow_and_done_by_us(make_cluster):
    """TensorFlow's function returns before it asks anybody, and the first operation then blocks without end."""
    cluster: LoopbackCluster = make_cluster(jobs={"chief": 1, "worker": 1})
    assert json.loads(cluster.program(TO_NOBODY)) == {
        "ours": cluster.addresses["worker"],
        "ours connected": False,
        "theirs connected": True,
        "theirs started": False,
    }


#: Connects twice, the second time to one worker more, and then uses a variable from before.
OLD_VARIABLE = """
import sys
import tensorflow as tf
first, second = sys.argv[1:]
tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": [first]}))
with tf.device("/job:worker/task:0"):
    old = tf.Variable(1.0)
print(float(old), flush=True)
tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": [first, second]}))
print(len(tf.config.list_logical_devices("CPU")), flush=True)
print(float(old), flush=True)
"""


def test_variable_of_another_cluster_crashes_under_tensorflow(make_cluster):
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2})
    cluster.serve_all("worker")
    done = cluster.run("worker", 0, "-c", OLD_VARIABLE, *cluster.addresses["worker"])
    assert done.stdout.split() == ["1.0", "3"]
    assert done.returncode == -signal.SIGSEGV


def test_master_is_found_by_parts_in_tensorflow_and_exactly_by_us(monkeypatch):
    """TensorFlow takes the last task whose address is a part of the master's: port 222 of a host stands in for 2222."""
    cluster = {"ps": ["h:2222"], "worker": ["h:222"]}
    simple = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), master="h:2222", rpc_layer="grpc"
    )
    entered: list[str] = []
    monkeypatch.setattr(remote.context.Context, "set_server_def", lambda *_, **__: None)
    monkeypatch.setattr(remote.device_util, "canonicalize", lambda name: name)
    monkeypatch.setattr(remote.ops, "device", lambda name: nullcontext(entered.append(name)))

    tf.config.experimental_connect_to_cluster(simple)
    ours = TFClusterResolver.from_spec(cluster, "ps", 0)
    target = target_of(ours, job="localhost", index=None, protocol=None, filters=None, master=True)

    assert entered == ["/job:worker/replica:0/task:0"]
    assert target.master == ("ps", 0)
