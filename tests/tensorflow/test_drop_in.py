"""The resolver as a replacement of TensorFlow's own, in callers that test_connecting.py does not cover."""

import json
import signal

from loopback_cluster import DEADLINE, LoopbackCluster

SERVE_BY_TENSORFLOW = """
from tensorflow.python.distribute.coordinator.utils import start_server
from tfcluster_resolver import TFClusterResolver
start_server(TFClusterResolver(), "grpc")
"""

COUNTING = """
import json
from tensorflow.python.eager import context
from tfcluster_resolver import TFClusterResolver
TFClusterResolver().num_accelerators()
print(json.dumps(context.context()._initialized))
"""

EQUAL_WORKERS = """
import itertools, json, os, sys
import tensorflow as tf
from tensorflow.python.distribute import distribute_coordinator
from tfcluster_resolver import TFClusterResolver

class Recording(TFClusterResolver):
    asked = []

    def num_accelerators(self, *arguments, **options):
        counts = super().num_accelerators(*arguments, **options)
        self.asked.append([list(arguments), sorted(options), dict(counts)])
        return counts

resolver = Recording().snapshot()
strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)

def reduce_together(strategy):
    mine = tf.constant(float(resolver.task_id + 1))
    total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", mine))
    return float(total)

first = reduce_together(strategy)
independent = distribute_coordinator.CoordinatorMode.INDEPENDENT_WORKER
second = distribute_coordinator.run_distribute_coordinator(reduce_together, strategy, mode=independent)
print(json.dumps({"asked": Recording.asked, "totals": [first, second], "workers": strategy.num_replicas_in_sync}),
      flush=True)

with strategy.scope():
    steps = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.SUM)
handler = tf.distribute.experimental.PreemptionCheckpointHandler(
    resolver, tf.train.Checkpoint(steps=steps), sys.argv[1],
    tf.distribute.experimental.TerminationConfig(exit_fn=lambda: os._exit(42), grace_period=0))

@tf.function
def train():
    # The sum over the workers keeps them in step, which the handler relies on.
    strategy.run(lambda: steps.assign_add(tf.constant(1, tf.int64)))

for number in itertools.count():
    handler.run(train)
    if number == 5:
        print("training", flush=True)
"""


def test_counting_does_not_start_the_runtime(make_cluster):
    """TensorFlow's resolvers start it, and then threads and memory growth cannot be set any more."""
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2})
    assert json.loads(cluster.program(COUNTING, "worker", 0)) is False


def test_multi_worker_mirrored_strategy_and_what_goes_with_it(make_cluster, tmp_path):
    """Two processes reduce together, alone and under the coordinator; after a SIGTERM both save the same step."""
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2}, limits={"worker": {"nvidia.com/gpu": 2}})
    workers = [cluster.start("worker", index, "-c", EQUAL_WORKERS, str(tmp_path / "saved")) for index in (0, 1)]

    told = [json.loads(cluster.await_line(worker, "{")) for worker in workers]
    for worker in workers:
        cluster.await_line(worker, "training")
    workers[1].send_signal(signal.SIGTERM)
    ended = [worker.wait(DEADLINE) for worker in workers]

    assert [one["totals"] for one in told] == [[3.0, 3.0]] * 2
    assert [one["workers"] for one in told] == [2, 2]
    assert all(one["asked"] and all(call == [[], [], {"GPU": 0}] for call in one["asked"]) for one in told)
    assert ended == [42, 42], cluster.logs()
    assert list((tmp_path / "saved").glob("ckpt-1.index"))


OUTSIDE = """
import json, os
import tensorflow as tf
from tfcluster_resolver import ClusterSpec, TFClusterResolver, connect_to_cluster
from tfcluster_resolver.errors import ClusterChangedError, ConnectError
small, large, filters = json.loads(os.environ["CLUSTERS"])
filters = {job: {int(index): texts for index, texts in tasks.items()} for job, tasks in filters.items()}

def refusal(*arguments, **options):
    try:
        connect_to_cluster(*arguments, **options)
    except ClusterChangedError as error:
        return str(error)

def train(cluster, start, **options):
    resolver = TFClusterResolver.from_spec(cluster, device_filters=filters)
    connect_to_cluster(resolver, job_name="chief", timeout=120, **options)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(start, name="weight")

    @tf.function
    def step():
        weight.assign_add(1.0)

    for _ in range(8):
        coordinator.schedule(step)
    coordinator.join()
    return strategy, coordinator, weight, step

early = tf.Variable(1.5)
try:
    connect_to_cluster(ClusterSpec(small), "chief")
except ConnectError as error:
    early = str(error)
held = train(small, 0.0)
local = tf.Variable(1.5)
saved = float(held[2].numpy())
told = {"saved": saved, "early": early, "local": float(local)}
other = TFClusterResolver.from_spec(large, device_filters=filters)
told["unasked"] = refusal(other, job_name="chief")
told["held"] = refusal(other, job_name="chief", on_change="reset")
inside = TFClusterResolver.from_spec(large | {"chief": ["127.0.0.1:1"]}, "chief", 0, device_filters=filters)
told["inside"] = refusal(inside, on_change="reset")
told["renamed"] = refusal(other, job_name="localhost", on_change="reset")
wider = {**filters, "worker": {0: ["/job:ps"]}}
told["filters"] = refusal(other, job_name="chief", cluster_device_filters=wider, on_change="reset")
told["still works"] = float(held[2].numpy())
held = None
strategy, coordinator, weight, step = train(large, saved, on_change="reset")
told["went on"] = float(weight.numpy())
told["workers"] = sorted({device.name.split("/device")[0] for device in tf.config.list_logical_devices()
                          if "/job:worker" in device.name})
told["used"] = strategy._num_workers
told["local after"] = float(local)
connect_to_cluster(ClusterSpec(large), "chief", timeout=120, cluster_device_filters=filters)
told["repaired"] = float(weight.numpy())
print(json.dumps(told), flush=True)
os._exit(0)
"""


def test_process_outside_of_the_cluster_is_reset(make_cluster, monkeypatch):
    """The changed cluster is rejected while the process holds objects of the old one, and trains afterwards."""
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2, "ps": 1, "outside": 1})
    cluster.serve_all("ps")
    for index in (0, 1):
        cluster.start("worker", index, "-c", SERVE_BY_TENSORFLOW)
    own = cluster.addresses.pop("outside")
    large = dict(cluster.addresses)
    small = large | {"worker": large["worker"][:1]}
    cluster.addresses["outside"] = own
    filters = {"worker": {str(index): ["/job:ps", "/job:chief"] for index in range(4)}}
    monkeypatch.setenv("CLUSTERS", json.dumps([small, large, filters]))

    told = json.loads(cluster.program(OUTSIDE, "outside", 0))

    assert (told["saved"], told["still works"], told["went on"], told["repaired"]) == (8.0, 8.0, 16.0, 16.0)
    assert told["workers"] == ["/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"]
    assert told["used"] == 2
    assert told["local"] == told["local after"] == 1.5
    assert "variable Variable:0 on /job:localhost/replica:0/task:0" in told["early"]
    assert "The options" in told["unasked"]
    assert "variable weight:0 on /job:ps/replica:0/task:0" in told["held"]
    assert "TensorFlow never closes the server" in told["inside"]
    assert "its own variables live on /job:chief/task:0" in told["renamed"]
    assert "the device filters of /job:worker/task:0" in told["filters"]
