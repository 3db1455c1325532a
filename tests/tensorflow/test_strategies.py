"""The statements of docs/reference/strategies.md on Keras, DTensor, the data service and variables."""

import json
import os
import re
from pathlib import Path

import pytest
from loopback_cluster import ROOT, LoopbackCluster

from tfcluster_resolver import TFClusterResolver, connect_to_cluster
from tfcluster_resolver.errors import ConnectError

pytestmark = pytest.mark.exhaustive

PAGE = (ROOT / "docs" / "reference" / "strategies.md").read_text(encoding="utf-8")

KERAS_3 = """
import json, os
import keras
import numpy as np
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, connect_to_cluster

x, y = np.ones((64, 4), np.float32), np.ones((64, 1), np.float32)
cluster = TFClusterResolver().snapshot()
connect_to_cluster(cluster, timeout=120)
strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

def in_replica():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss

step = tf.function(lambda: strategy.run(in_replica))
values = [coordinator.schedule(step) for _ in range(20)]
coordinator.join()
print(json.dumps([float(values[0].fetch()), float(values[-1].fetch()), int(optimizer.iterations.numpy())]), flush=True)
os._exit(0)
"""


def test_keras_3_trains_in_a_custom_loop(make_cluster):
    cluster: LoopbackCluster = make_cluster(jobs={"chief": 1, "worker": 1, "ps": 1})
    cluster.serve_all("worker", "ps")
    first, last, steps = json.loads(cluster.program(KERAS_3))
    assert last < first
    assert steps == 20


#: Fits five epochs; before the second and the fourth it waits for a new epoch of the view, and applies it.
FIT = """
import json, os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path.append(sys.argv[1])
import numpy as np
import tensorflow as tf
import tf_keras as keras
from tfcluster_resolver import TFClusterResolver, connect_to_cluster, resize
resolver = TFClusterResolver()
cluster = resolver.snapshot()
connect_to_cluster(cluster, timeout=120)
strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

def batches(context):
    x = np.random.default_rng(0).random((256, 8), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).repeat().batch(16)

with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.legacy.Adam(0.01), "mse")
news = resolver.snapshot().watch()

class Resize(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch in (1, 3):
            print("resizing", flush=True)
            next(news)
            change = resize(coordinator, resolver)
            self.change = [len(change.added), len(change.removed)]

    def on_epoch_end(self, epoch, logs=None):
        traces = model.train_tf_function.experimental_get_tracing_count()
        print(json.dumps([logs["loss"], getattr(self, "change", None), traces]), flush=True)

creator = keras.utils.experimental.DatasetCreator(batches)
model.fit(creator, epochs=5, steps_per_epoch=100, verbose=0, callbacks=[Resize()])
print(json.dumps([int(model.optimizer.iterations.numpy()), model.evaluate(creator, steps=5, verbose=0)]), flush=True)
os._exit(0)
"""


def test_keras_2_fits_on_while_workers_come_and_go(make_cluster):
    """Two workers become three and two again between epochs: every step counts once, nothing is traced again."""
    keras = os.environ.get("TFCLUSTER_TF_KERAS")
    assert keras, "TFCLUSTER_TF_KERAS is not as `make tensorflow-tests` sets it"
    cluster: LoopbackCluster = make_cluster(
        jobs={"chief": 1, "worker": 2, "ps": 1},
        filters={"worker": ("/job:ps", "/job:chief"), "ps": ("/job:worker", "/job:chief")},
    )
    cluster.serve_all("worker", "ps")
    chief = cluster.start("chief", 0, "-c", FIT, keras, fresh=True)  # it chooses Keras before TensorFlow
    cluster.await_line(chief, "resizing")
    third = cluster.add_task("worker")
    cluster.publish(epoch=2)
    cluster.serve(("worker", third))
    epochs = [json.loads(cluster.await_line(chief, "[")) for _ in range(2)]
    cluster.await_line(chief, "resizing")
    cluster.addresses["worker"].pop()
    cluster.publish(epoch=3)
    epochs += [json.loads(cluster.await_line(chief, "[")) for _ in range(2)]

    steps, loss = json.loads(cluster.await_line(chief, "["))

    assert [change for _, change, _ in epochs] == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert len({traces for *_, traces in epochs}) == 1
    assert steps == 500
    assert loss < epochs[0][0] / 2


#: The processes stay: an immediate exit of one would take unread data from the other.
DTENSOR = """
import json, threading
import tensorflow as tf
from tensorflow.experimental import dtensor
dtensor.initialize_accelerator_system("CPU")
count = dtensor.num_global_devices("CPU")
mesh = dtensor.create_distributed_mesh([("batch", count)], device_type="CPU")
ones = dtensor.call_with_layout(tf.ones, dtensor.Layout(["batch"], mesh), shape=(3 * count,))
print(json.dumps([count, float(dtensor.unpack(tf.reduce_sum(ones))[0])]), flush=True)
threading.Event().wait()
"""


def test_dtensor_finds_its_clients_in_the_view(make_cluster):
    """The page's variables build a mesh over two processes, which sum a tensor that both hold a part of."""
    (variables,) = re.findall(r"```python\n([^`]*DTENSOR_JOBS[^`]*)```", PAGE)
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2})
    workers = [cluster.start("worker", index, "-c", variables + DTENSOR) for index in (0, 1)]
    assert [json.loads(cluster.await_line(worker, "[")) for worker in workers] == [[2, 6.0]] * 2


def test_coordination_service_is_rejected(monkeypatch):
    monkeypatch.setenv("TF_PSS_ENABLE_COORDINATION_SERVICE", "0")
    with pytest.raises(ConnectError, match=r"TF_PSS_ENABLE_COORDINATION_SERVICE is set.*Unset it"):
        connect_to_cluster(TFClusterResolver.from_spec({"worker": ["127.0.0.1:1"]}), "chief", timeout=0)


# tf.data service: which workers prepare the data, and that data workers can be added while it runs.

SERVE = str(ROOT / "examples" / "serve_data.py")
#: Serves data in its own folder, which holds the task's name: a batch has the name of its worker.
SERVE_NAMED = """
import os, runpy, sys
os.chdir(sys.argv[1])
runpy.run_path(sys.argv[2], run_name="__main__")
"""
#: Reads data forever, and prints each new name of a data worker in it.
TAKE = """
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver
service = tf.data.experimental.service
dispatcher = TFClusterResolver().snapshot().cluster_spec().task_address("dispatcher", 0)
names = tf.data.Dataset.range(1).repeat().map(lambda _: tf.io.read_file("name"))
names = names.apply(service.distribute(processing_mode=service.ShardingPolicy.OFF, service=f"grpc://{dispatcher}"))
known = set()
for name in names:
    if name.numpy() not in known:
        known.add(name.numpy())
        print("made by", name.numpy().decode(), flush=True)
"""


def serve(cluster: LoopbackCluster, folder: Path, job: str, index: int) -> None:
    place = folder / f"{job}-{index}"
    place.mkdir()
    (place / "name").write_text(f"{job}-{index}")
    cluster.await_line(cluster.start(job, index, "-c", SERVE_NAMED, str(place), SERVE), "serving data as")


def test_data_workers_serve_data_also_when_added_later(make_cluster, tmp_path):
    """The chief finds the dispatcher in the view, and gets data of both data workers, and of a third that is added."""
    cluster: LoopbackCluster = make_cluster(jobs={"chief": 1, "dispatcher": 1, "dataworker": 2})
    serve(cluster, tmp_path, "dispatcher", 0)
    for index in (0, 1):
        serve(cluster, tmp_path, "dataworker", index)
    chief = cluster.start("chief", 0, "-c", TAKE)
    first = {cluster.await_line(chief, "made by").split()[-1] for _ in range(2)}

    third = cluster.add_task("dataworker")
    cluster.publish(epoch=2)
    serve(cluster, tmp_path, "dataworker", third)

    assert first == {"dataworker-0", "dataworker-1"}
    assert cluster.await_line(chief, "made by").split()[-1] == "dataworker-2"
