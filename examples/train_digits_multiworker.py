"""Train a small network on scikit-learn's digits on equal workers: every pod runs this program.

MultiWorkerMirroredStrategy starts each worker's server itself, waits for all of them, and averages their gradients.
A worker cannot continue without the others, so all restart when one fails, and after a resize, which does not need new
pods; with --checkpoints they continue from the last pass over the data.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tfcluster_resolver import RestartOnResize, TFClusterResolver

BATCH = 32
RATE = 0.1


class Checkpoints:
    """The newest states of some variables in a folder that all workers share, restored at the start."""

    def __init__(self, folder: str | None, cluster: TFClusterResolver, **kept: object) -> None:
        # Every worker must take part in saving; only one writes the real checkpoint, the others write temporary files.
        self._writes = cluster.task_id == 0
        self._own = Path(folder) / f"other.{cluster.task_id}" if folder else None
        checkpoint = tf.train.Checkpoint(**kept)
        latest = tf.train.latest_checkpoint(folder) if folder else None
        if latest:
            checkpoint.restore(latest).assert_consumed()
        where = folder if self._writes else str(self._own)
        self._manager = tf.train.CheckpointManager(checkpoint, where, max_to_keep=2) if folder else None

    def save(self) -> None:
        """Write a checkpoint, and delete the last but two."""
        if self._manager is None:
            return
        self._manager.save()
        if self._own is not None and not self._writes:
            shutil.rmtree(self._own, ignore_errors=True)


def main() -> None:
    """Train, and print the loss and the accuracy after every pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data")
    parser.add_argument("--checkpoints", help="a folder on a volume that all workers share and that outlives them")
    options = parser.parse_args()

    restart = RestartOnResize()
    cluster = restart.meet()
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=cluster)
    workers = cluster.cluster_spec().num_tasks("worker")
    print(f"worker {cluster.task_id} of {workers}, {strategy.num_replicas_in_sync} replicas", flush=True)

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    labels = labels.astype(np.int64)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.25, random_state=0
    )
    pairs = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
    pairs = pairs.shuffle(len(train_labels), seed=1).repeat().batch(BATCH * strategy.num_replicas_in_sync)
    batches = iter(strategy.experimental_distribute_dataset(pairs))

    with strategy.scope():
        weights = tf.Variable(tf.zeros((64, 10)))
        bias = tf.Variable(tf.zeros((10,)))

    def replica_step(batch: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=batch @ weights + bias)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [weights, bias])
        context = tf.distribute.get_replica_context()
        for variable, gradient in zip([weights, bias], context.all_reduce("MEAN", gradients), strict=True):
            variable.assign_sub(RATE * gradient)
        return loss

    @tf.function
    def step() -> tf.Tensor:
        loss = strategy.run(replica_step, args=next(batches))
        return strategy.reduce("MEAN", loss, axis=None)

    passed = tf.Variable(0, dtype=tf.int64)
    checkpoints = Checkpoints(options.checkpoints, cluster, weights=weights, bias=bias, passed=passed)
    print(f"{int(passed)} passes were completed before", flush=True)
    loss = tf.constant(0.0)
    while int(passed) < options.epochs:
        for _ in range(len(train_labels) // (BATCH * strategy.num_replicas_in_sync)):
            loss = step()
        accuracy = float(np.mean(np.argmax(test_images @ weights.numpy() + bias.numpy(), axis=1) == test_labels))
        passed.assign_add(1)
        print(f"pass {int(passed)}: loss {float(loss):.3f}, accuracy {accuracy:.3f}", flush=True)
        checkpoints.save()
        restart.check(strategy)
    print("done", flush=True)


if __name__ == "__main__":
    main()
