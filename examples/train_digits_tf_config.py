"""Train on scikit-learn's digits on equal workers, as a program that was written for TF_CONFIG.

It does not use TFCluster's Python package: TensorFlow reads the cluster from the environment variable TF_CONFIG.
"""

from __future__ import annotations

import json
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

EPOCHS = 10
BATCH = 64
RATE = 0.1


def main() -> None:
    """Train, and print the loss and the accuracy after every pass."""
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    print(f"worker {task['index']}, {strategy.num_replicas_in_sync} replicas", flush=True)

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16.0).astype(np.float32), labels.astype(np.int64)
    pairs = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels), seed=1).repeat().batch(BATCH)
    batches = iter(strategy.experimental_distribute_dataset(pairs))
    with strategy.scope():
        weights, bias = tf.Variable(tf.zeros((64, 10))), tf.Variable(tf.zeros((10,)))

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
        return strategy.reduce("MEAN", strategy.run(replica_step, args=next(batches)), axis=None)

    for epoch in range(1, EPOCHS + 1):
        for _ in range(len(labels) // BATCH):
            loss = step()
        accuracy = float(np.mean(np.argmax(images @ weights.numpy() + bias.numpy(), axis=1) == labels))
        print(f"pass {epoch}: loss {float(loss):.3f}, accuracy {accuracy:.3f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
