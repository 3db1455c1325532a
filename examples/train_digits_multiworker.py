"""Train a small network on scikit-learn's digits on equal workers: every pod runs this program.

MultiWorkerMirroredStrategy starts each worker's server itself, waits for all of them, and averages their gradients.
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tfcluster_resolver import TFClusterResolver

BATCH = 32
RATE = 0.1


def main() -> None:
    """Train, and print a line of loss and accuracy an epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data")
    options = parser.parse_args()

    cluster = TFClusterResolver().snapshot()
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

    loss = tf.constant(0.0)
    for epoch in range(1, options.epochs + 1):
        for _ in range(len(train_labels) // (BATCH * strategy.num_replicas_in_sync)):
            loss = step()
        accuracy = float(np.mean(np.argmax(test_images @ weights.numpy() + bias.numpy(), axis=1) == test_labels))
        print(f"pass {epoch}: loss {float(loss):.3f}, accuracy {accuracy:.3f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
