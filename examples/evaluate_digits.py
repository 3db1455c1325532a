"""Judge each checkpoint that train_digits.py writes, as a job named evaluator that shares its volume.

An evaluator is not in the ClusterSpec of other tasks: it only reads checkpoints.
"""

from __future__ import annotations

import argparse
import time

import tensorflow as tf
from train_digits import accuracy_of, initial_layers, loss_of, read_digits


def main() -> None:
    """Print a line of loss and accuracy for each checkpoint that is seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="stop after this pass over the data")
    parser.add_argument("--checkpoints", required=True, help="the folder that the chief writes to")
    options = parser.parse_args()

    _, images, _, labels = read_digits()
    layers, passed = initial_layers(), tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(layers=layers, passed=passed)
    seen = None
    while int(passed) < options.epochs:
        latest = tf.train.latest_checkpoint(options.checkpoints)
        if latest in (None, seen):
            time.sleep(0.5)
            continue
        try:
            checkpoint.restore(latest).assert_consumed()
        except (tf.errors.NotFoundError, tf.errors.DataLossError):
            continue  # the chief has deleted it in the meantime, after writing a newer one
        seen = latest
        loss, accuracy = float(loss_of(layers, images, labels)), accuracy_of(layers, images, labels)
        print(f"evaluated pass {int(passed)}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
