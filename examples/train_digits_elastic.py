"""Train on scikit-learn's digits with parameter servers, on as many workers as there are, from the chief's pod.

A strategy cannot change its workers.  When the cluster is resized, this program trains on until the new workers listen,
writes a checkpoint, and starts itself again in the same pod.  The servers of the workers and the ps go on untouched.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import tensorflow as tf
from train_digits import Checkpoints, read_digits

from tfcluster_resolver import TFClusterResolver, connect_to_cluster

BATCH = 64
RATE = 0.1


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data")
    parser.add_argument("--keep-running", action="store_true", help="go on training until SIGTERM")
    parser.add_argument("--checkpoints", required=True, help="a folder that outlives this process")
    return parser.parse_args()


def hear_of_resizes(cluster: TFClusterResolver) -> threading.Event:
    """Give an event that is set once the cluster has other tasks than in a snapshot, and all of them listen."""
    resized = threading.Event()

    def hear() -> None:
        # The snapshot knows its epoch: a resize between then and now is not missed.
        for change in cluster.watch():
            names = [
                f"{sign}{task.job}/{task.index}"
                for sign, tasks in (("+", change.added), ("-", change.removed))
                for task in tasks
            ]
            print(f"cluster epoch {change.epoch}: {' '.join(names) or 'other device filters'}", flush=True)
            # It follows further resizes.  When the new tasks do not come, training goes on with the old ones.
            waited = subprocess.run([sys.executable, "-m", "tfcluster_resolver", "wait"], check=False)
            if waited.returncode == 0:
                resized.set()

    threading.Thread(target=hear, daemon=True).start()
    return resized


def main() -> None:
    """Train, and print a line of loss and accuracy a pass."""
    options = read_options()
    # The coordinator's threads can keep a process from ending after a worker was lost, so this does not wait for them.
    # NB: not 0, which would say that the training is done: an evicted pod that ends well counts as a completed task.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))

    cluster = TFClusterResolver().snapshot()
    connect_to_cluster(cluster)
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    train_images, test_images, train_labels, test_labels = read_digits()
    with strategy.scope():
        weights = tf.Variable(tf.zeros((64, 10)))
        bias = tf.Variable(tf.zeros((10,)))

    def loss_of(batch: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        logits = batch @ weights + bias
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=logits))

    @tf.function
    def batches() -> tf.data.Dataset:
        pairs = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
        return pairs.shuffle(len(train_labels)).repeat().batch(BATCH)

    @tf.function
    def step(iterator: tf.data.Iterator) -> None:
        batch, wanted = next(iterator)
        with tf.GradientTape() as tape:
            loss = loss_of(batch, wanted)
        for variable, gradient in zip((weights, bias), tape.gradient(loss, (weights, bias)), strict=True):
            variable.assign_sub(RATE * gradient)

    passed = tf.Variable(0, dtype=tf.int64)
    checkpoints = Checkpoints(options.checkpoints, cluster, weights=weights, bias=bias, passed=passed)
    iterator = iter(coordinator.create_per_worker_dataset(batches))
    workers = cluster.cluster_spec().num_tasks("worker")
    print(f"training with {workers} workers, cluster epoch {cluster.epoch}, after {int(passed)} passes", flush=True)
    resized = hear_of_resizes(cluster)
    while options.keep_running or int(passed) < options.epochs:
        for _ in range(len(train_labels) // BATCH):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        passed.assign_add(1)
        loss = float(loss_of(test_images, test_labels))
        accuracy = float(np.mean(np.argmax(test_images @ weights.numpy() + bias.numpy(), axis=1) == test_labels))
        print(f"pass {int(passed)}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
        checkpoints.save()
        if resized.is_set():
            print("starting again from the checkpoint", flush=True)
            os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - it starts itself
    print("done", flush=True)


if __name__ == "__main__":
    main()
    # NB: after a worker was lost and came back, the coordinator's threads can keep a finished process from ending.
    os._exit(0)
