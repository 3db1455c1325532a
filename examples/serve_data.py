"""Serve tf.data: the pods of the jobs ``dispatcher`` and ``dataworker`` run this program.

The dispatcher assigns the work, the data workers do it: they read, decode and augment, and the training receives ready
batches. Data workers can be added and removed while the training runs; a new one registers with the dispatcher.
"""

from __future__ import annotations

import os
import signal

import tensorflow as tf

from tfcluster_resolver import TFClusterResolver

DISPATCHER, DATA_WORKER = "dispatcher", "dataworker"


def start(cluster: TFClusterResolver) -> object:
    """Start the server of this pod's task."""
    spec, service = cluster.cluster_spec(), tf.data.experimental.service
    address = spec.task_address(cluster.task_type, cluster.task_id)
    port = int(address.rpartition(":")[2])
    if cluster.task_type == DISPATCHER:
        return service.DispatchServer(service.DispatcherConfig(port=port))
    return service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=spec.task_address(DISPATCHER, 0),
            worker_address=address,
            port=port,
            # A dispatcher that was restarted learns about this worker from its next message.
            heartbeat_interval_ms=5000,
        )
    )


def main() -> None:
    """Serve until the pod ends."""
    # As process 1 of a container, Python gets SIGTERM only with a handler, which the server's join() would block.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    cluster = TFClusterResolver().snapshot()
    server = start(cluster)
    print(f"serving data as {cluster.task_type} {cluster.task_id}", flush=True)
    while server:
        signal.pause()


if __name__ == "__main__":
    main()
