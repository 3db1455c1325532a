"""What docs/strategies.md says of Keras 3, DTensor, TPUs, the coordination service and TensorFlow's variables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tensorflow as tf
from loopback_cluster import ROOT, LoopbackCluster

from tfcluster_resolver import TFClusterResolver, connect_to_cluster
from tfcluster_resolver.errors import ConnectError

pytestmark = pytest.mark.exhaustive

PAGE = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")

#: Says of each attempt what it gave, or the error's class and first line.
TRY = """
import json, os
import keras
import numpy as np
import tensorflow as tf
from tfcluster_resolver import RestartOnResize, TFClusterResolver, connect_to_cluster

told = {}

def attempt(name, act):
    try:
        told[name] = act()
    except Exception as error:
        told[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"

x, y = np.ones((64, 4), np.float32), np.ones((64, 1), np.float32)
"""
TELL = """
print(json.dumps(told), flush=True)
os._exit(0)
"""

#: For equal workers: who ends at once takes from the others what they have not read yet.
TELL_AND_STAY = """
import threading
print(json.dumps(told), flush=True)
threading.Event().wait()
"""

PARAMETER_SERVERS = """
cluster = TFClusterResolver().snapshot()
connect_to_cluster(cluster, timeout=120)
strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    compiled = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    compiled.compile("sgd", "mse")

def in_replica():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss

def losses(step):
    values = [coordinator.schedule(step) for _ in range(20)]
    coordinator.join()
    return [float(values[0].fetch()), float(values[-1].fetch()), int(optimizer.iterations.numpy())]

attempt("within run", lambda: losses(tf.function(lambda: strategy.run(in_replica))))
attempt("outside of run", lambda: losses(tf.function(in_replica)))
attempt("fit", lambda: compiled.fit(x, y, verbose=0))
attempt("evaluate", lambda: compiled.evaluate(x, y, verbose=0))
attempt("predict", lambda: compiled.predict(x, verbose=0))
attempt("TPUStrategy", lambda: tf.distribute.TPUStrategy(cluster))
attempt("initialize_tpu_system", lambda: tf.tpu.experimental.initialize_tpu_system(cluster))
"""


def test_keras_3_and_tpus_with_parameter_servers(make_cluster):
    """Keras 3 trains in a custom loop within ``strategy.run``, not otherwise; TPUStrategy takes no such resolver."""
    cluster: LoopbackCluster = make_cluster(jobs={"chief": 1, "worker": 1, "ps": 1})
    cluster.serve_all("worker", "ps")

    told = json.loads(cluster.program(TRY + PARAMETER_SERVERS + TELL))

    first, last, steps = told["within run"]
    assert last < first
    assert steps == 20
    assert told["outside of run"].startswith("AttributeError")
    assert {told[way].partition(":")[0] for way in ("fit", "evaluate", "predict")} == {"ValueError"}
    assert told["TPUStrategy"].startswith("AttributeError")
    assert told["initialize_tpu_system"].startswith("AssertionError")


EQUAL_WORKERS = """
strategy = tf.distribute.MultiWorkerMirroredStrategy(RestartOnResize().meet())
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
batches = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8)
attempt("fit", lambda: model.fit(batches, steps_per_epoch=4, verbose=0).history)
"""


def test_keras_3_does_not_fit_on_equal_workers(make_cluster):
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2})
    workers = [cluster.start("worker", index, "-c", TRY + EQUAL_WORKERS + TELL_AND_STAY) for index in (0, 1)]
    told = [json.loads(cluster.await_line(worker, "{")) for worker in workers]
    assert all(one["fit"].startswith("ValueError") for one in told)


DTENSOR = """
from tensorflow.experimental import dtensor
dtensor.initialize_accelerator_system("CPU")
count = dtensor.num_global_devices("CPU")
mesh = dtensor.create_distributed_mesh([("batch", count)], device_type="CPU")
ones = dtensor.call_with_layout(tf.ones, dtensor.Layout(["batch"], mesh), shape=(3 * count,))
told["devices"] = count
told["sum"] = float(dtensor.unpack(tf.reduce_sum(ones))[0])
"""


def test_dtensor_finds_its_clients_in_the_view(make_cluster):
    """The page's variables make a mesh over two processes, which sum a tensor that both hold a part of."""
    (variables,) = re.findall(r"```python\n([^`]*DTENSOR_JOBS[^`]*)```", PAGE)
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2})
    workers = [cluster.start("worker", index, "-c", TRY + variables + DTENSOR + TELL_AND_STAY) for index in (0, 1)]
    told = [json.loads(cluster.await_line(worker, "{")) for worker in workers]
    assert told == [{"devices": 2, "sum": 6.0}] * 2


def test_coordination_service_is_refused(monkeypatch):
    """Connecting with the service asked for, by whatever text, is refused at once, with the ways out."""
    monkeypatch.setenv("TF_PSS_ENABLE_COORDINATION_SERVICE", "0")
    with pytest.raises(ConnectError, match=r"TF_PSS_ENABLE_COORDINATION_SERVICE is set.*Unset it"):
        connect_to_cluster(TFClusterResolver.from_spec({"worker": ["127.0.0.1:1"]}), "chief", timeout=0)


def test_every_variable_of_the_strategy_is_documented():
    """The page lists the variables that the strategy and its coordinator read, and no other."""
    folder = Path(tf.__file__).parent / "python" / "distribute"
    sources = [folder / "parameter_server_strategy_v2.py", folder / "coordinator" / "cluster_coordinator.py"]
    read = {name for source in sources for name in re.findall(r'"(TF_(?:PSS?|COORDINATOR)_\w+)"', source.read_text())}
    assert read == set(re.findall(r"^\| `(TF_\w+)` \|", PAGE, re.MULTILINE))
