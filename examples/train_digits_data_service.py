"""Train on scikit-learn's digits that other pods prepare: the chief runs this program, and takes ready batches.

serve_data.py runs in the jobs ``dispatcher`` and ``dataworker``.
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tfcluster_resolver import TFClusterResolver

BATCH = 64
RATE = 0.1


def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Add noise to an image; this runs in the data workers."""
    return image + tf.random.normal(tf.shape(image), stddev=0.05), label


def main() -> None:
    """Train, and print the loss and the accuracy after every pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data")
    options = parser.parse_args()

    cluster = TFClusterResolver().snapshot()
    dispatcher = cluster.cluster_spec().task_address("dispatcher", 0)
    print(f"the data come from {dispatcher}", flush=True)

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16.0).astype(np.float32), labels.astype(np.int64)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.25, random_state=0
    )
    pairs = tf.data.Dataset.from_tensor_slices((train_images, train_labels)).shuffle(len(train_labels)).repeat()
    batches = pairs.map(augment).batch(BATCH)
    # Each data worker reads all data in its own order, so any number of them can take part.
    batches = batches.apply(
        tf.data.experimental.service.distribute(
            processing_mode=tf.data.experimental.service.ShardingPolicy.OFF, service=f"grpc://{dispatcher}"
        )
    )

    weights, bias = tf.Variable(tf.zeros((64, 10))), tf.Variable(tf.zeros((10,)))

    @tf.function
    def step(batch: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=batch @ weights + bias)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip([weights, bias], tape.gradient(loss, [weights, bias]), strict=True):
            variable.assign_sub(RATE * gradient)
        return loss

    steps = len(train_labels) // BATCH
    for number, (batch, wanted) in enumerate(batches.take(steps * options.epochs), start=1):
        loss = step(batch, wanted)
        if number % steps == 0:
            accuracy = float(np.mean(np.argmax(test_images @ weights.numpy() + bias.numpy(), axis=1) == test_labels))
            print(f"pass {number // steps}: loss {float(loss):.3f}, accuracy {accuracy:.3f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
