"""Keras 2's ``model.fit`` with parameter servers, resized between epochs."""

from __future__ import annotations

import json
import os

import pytest
from loopback_cluster import LoopbackCluster

pytestmark = pytest.mark.exhaustive

#: Fits five epochs; before the second and the fourth it waits for a new epoch of the view, and has it taken over.
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
    cluster.await_line(cluster.serve("worker", third), "serving")
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
