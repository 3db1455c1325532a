"""Train a small network on scikit-learn's digits with parameter servers, from the chief's pod.

The workers and the ps run ``python -m tfcluster_resolver serve``; this program drives them. It follows its cluster
while it trains: added workers get a share, removed workers finish their current step, and a lost worker joins again
when its new pod listens. With --checkpoints it continues from the last finished pass, after a failure and after a
suspension. With --logs TensorBoard shows the progress.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
import traceback

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tfcluster_resolver import Change, TFClusterResolver, connect_to_cluster, follow

HIDDEN = 64
BATCH = 64
RATE = 0.1


class Checkpoints:
    """The newest states of some variables in a folder, restored at the start. Without a folder nothing is saved."""

    def __init__(self, folder: str | None, cluster: TFClusterResolver, **kept: object) -> None:
        # Otherwise each ps would write its variables into its own file system, which is lost with the pod.
        here = f"/job:{cluster.task_type}/task:{cluster.task_id}"
        self._options = tf.train.CheckpointOptions(experimental_io_device=here)
        checkpoint = tf.train.Checkpoint(**kept)
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2) if folder else None
        if self._manager and self._manager.latest_checkpoint:
            checkpoint.restore(self._manager.latest_checkpoint, options=self._options).assert_consumed()

    def save(self) -> None:
        """Write a checkpoint, and delete the last but two."""
        if self._manager:
            self._manager.save(options=self._options)


def initial_layers() -> list[tf.Variable]:
    """Create the weights and biases of the network: 64 pixels, a hidden layer, ten digits."""
    random = np.random.default_rng(0)
    shapes = ((64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))
    return [tf.Variable(random.normal(scale=0.1, size=shape), dtype=tf.float32) for shape in shapes]


def logits(layers: list[tf.Variable], batch: tf.Tensor) -> tf.Tensor:
    """Score each image of a batch for each of the ten digits."""
    hidden = tf.nn.relu(batch @ layers[0] + layers[1])
    return hidden @ layers[2] + layers[3]


def loss_of(layers: list[tf.Variable], batch: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Average the loss over a batch."""
    scores = logits(layers, batch)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=scores))


def accuracy_of(layers: list[tf.Variable], batch: tf.Tensor, wanted: np.ndarray) -> float:
    """Return the share of a batch that is recognised."""
    return float(np.mean(np.argmax(logits(layers, batch), axis=1) == wanted))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data before the accuracy is judged")
    parser.add_argument("--keep-running", action="store_true", help="continue training until SIGTERM")
    parser.add_argument("--checkpoints", help="a folder on a volume that outlives the pods")
    parser.add_argument("--logs", help="a folder for TensorBoard")
    parser.add_argument("--connect-timeout", type=float, default=300.0, help="seconds to wait for the other tasks")
    return parser.parse_args()


def read_digits() -> list[np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    return train_test_split((images / 16.0).astype(np.float32), labels.astype(np.int64), test_size=0.25, random_state=0)


def tell(change: Change) -> None:
    """Print a change of the cluster that trains."""
    parts = {"+": change.added, "-": change.removed, "again ": change.replaced}
    told = [f"{sign}{task.job}/{task.index}" for sign, tasks in parts.items() for task in tasks]
    print(f"cluster epoch {change.epoch}: {', '.join([*told, *map(str, change.refused)])}", flush=True)


def main() -> None:
    """Train, and print the loss and the accuracy after every pass."""
    options = read_options()
    # The coordinator's threads can block the exit after a worker was lost, so os._exit() does not wait for them.
    # The exit code is not 0, because an evicted pod that ends with 0 counts as a completed task.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))

    cluster = TFClusterResolver().snapshot()  # one epoch for everything that is built here; follow() reports later ones
    connect_to_cluster(cluster, timeout=options.connect_timeout)
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    train_images, test_images, train_labels, test_labels = read_digits()
    with strategy.scope():
        layers = initial_layers()

    @tf.function
    def batches() -> tf.data.Dataset:
        pairs = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
        return pairs.shuffle(len(train_labels)).repeat().batch(BATCH)

    @tf.function
    def step(iterator: tf.data.Iterator) -> None:
        batch, wanted = next(iterator)
        with tf.GradientTape() as tape:
            loss = loss_of(layers, batch, wanted)
        for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
            layer.assign_sub(RATE * gradient)

    passed = tf.Variable(0, dtype=tf.int64)
    checkpoints = Checkpoints(options.checkpoints, cluster, layers=layers, passed=passed)
    board = tf.summary.create_file_writer(options.logs) if options.logs else tf.summary.create_noop_writer()
    iterator = iter(coordinator.create_per_worker_dataset(batches))
    workers = cluster.cluster_spec().num_tasks("worker")
    print(f"training with {workers} workers, cluster epoch {cluster.epoch}", flush=True)
    passes, accuracy = int(passed), 0.0
    print(f"{passes} passes were completed before", flush=True)
    follow(coordinator, cluster, on_change=tell)
    while options.keep_running or passes < options.epochs:
        began = time.monotonic()
        for _ in range(len(train_labels) // BATCH):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        passes += 1
        loss = float(loss_of(layers, test_images, test_labels))
        accuracy = accuracy_of(layers, test_images, test_labels)
        took = time.monotonic() - began
        print(f"pass {passes}: loss {loss:.3f}, accuracy {accuracy:.3f}, {took:.2f} s", flush=True)
        with board.as_default(step=passes):
            tf.summary.scalar("loss", loss)
            tf.summary.scalar("accuracy", accuracy)
        board.flush()
        passed.assign(passes)
        checkpoints.save()
        if passes > options.epochs:
            time.sleep(1)  # the demonstration continues; the machine does not have to be busy with it
    print(f"done: accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    # os._exit, after an error too: Python's normal exit waits for TensorFlow, which can wait for a lost task.
    try:
        main()
    except Exception:  # noqa: BLE001 - it is told, and ends the program
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
