"""A program that reports the devices that each filter shows a task of a real runtime, and the accepted texts.

It starts the task servers in its own process, reads one JSON object from its input and writes one. Input: ``ports``,
one for each of TASKS; ``lists``, the lists of device filters to try; ``texts``, the single texts to try as a filter.
Output: ``devices``, those that a task without filters sees; ``seen``, for each list the task that had it and the
devices that the task saw; ``refused``, for each text the error message or null.
"""

import json
import os
import re
import sys

# Otherwise an error appears in a later operation than its own.
os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"

import tensorflow as tf
from tensorflow.python.eager import context

#: Job, index: two jobs whose names have a common prefix, and indices with a common prefix.
TASKS = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1), ("worker", 10), ("worker2", 0)]
NOWHERE = "/job:nosuch/replica:0/task:0/device:CPU:0"


def connect(spec: tf.train.ClusterSpec, filters: dict[tuple[str, int], list[str]]) -> None:
    # Device filters stay for the life of a context.
    context._reset_context()
    declared = tf.config.experimental.ClusterDeviceFilters()
    for (job, index), texts in filters.items():
        declared.set_device_filters(job, index, texts)
    tf.config.experimental_connect_to_cluster(spec, cluster_device_filters=declared)
    context.ensure_initialized()


def seen_by(job: str, index: int) -> list[str]:
    """Return the devices that a task sees: its error for an operation on a missing device lists them."""

    @tf.function
    def misplaced() -> tf.Tensor:
        with tf.device(NOWHERE):
            return tf.identity(1.0)

    try:
        with tf.device(f"/job:{job}/task:{index}/device:CPU:0"):
            misplaced().numpy()
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"available devices are \[ (.*?) \]", str(error))
        if found is None:
            raise
        return found[1].split(", ")
    raise AssertionError(f"an operation on {NOWHERE} was placed")


def refusal(spec: tf.train.ClusterSpec, text: str) -> str | None:
    try:
        connect(spec, {TASKS[0]: [text]})
    except tf.errors.InvalidArgumentError as error:
        return str(error)
    return None


def main() -> None:
    asked = json.load(sys.stdin)
    jobs: dict[str, dict[int, str]] = {}
    for (job, index), port in zip(TASKS, asked["ports"], strict=True):
        jobs.setdefault(job, {})[index] = f"127.0.0.1:{port}"
    spec = tf.train.ClusterSpec(jobs)
    two_devices = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
    servers = [tf.distribute.Server(spec, job_name=job, task_index=index, config=two_devices) for job, index in TASKS]
    connect(spec, {})
    told: dict[str, object] = {"devices": seen_by(*TASKS[0]), "seen": (seen := [])}
    for start in range(0, len(asked["lists"]), len(TASKS)):
        batch = dict(zip(TASKS, asked["lists"][start : start + len(TASKS)], strict=False))
        connect(spec, batch)
        seen += [(texts, job, index, seen_by(job, index)) for (job, index), texts in batch.items()]
    told["refused"] = {text: refusal(spec, text) for text in asked["texts"]}
    json.dump(told, sys.stdout)
    sys.stdout.flush()
    del servers
    # Servers cannot be stopped, and the process would wait for their threads.
    os._exit(0)


if __name__ == "__main__":
    main()
