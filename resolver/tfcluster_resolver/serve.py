"""The task server: TensorFlow's ``tf.distribute.Server`` for the pod's own task.

A server needs to know nothing but its own address: the coordinator that connects tells it the rest, so a resize never
restarts one.  SIGTERM ends it at once, also as process 1 of a container, where a signal without a handler is ignored and
``Server.join()`` would never run one.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from types import FrameType

from tfcluster_resolver import tensorflow_api
from tfcluster_resolver.errors import NoSuchTaskError, PortTakenError
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.task import EVALUATOR


def serve() -> None:
    """Serve the own task until SIGTERM or SIGINT, then end the process with exit code 0.

    Raises:
        ViewError: the view cannot be used.
        TaskIdentityError: the environment names the own task wrongly.
        NoSuchTaskError: this process is no task that can be served.
        PortTakenError: the task's port is taken.
        TensorFlowNotFoundError: TensorFlow is not installed.
    """
    stop = threading.Event()
    # NB: before TensorFlow is imported, which takes seconds in which a pod may be told to end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_at_once)
    resolver = TFClusterResolver()
    own = resolver.own_task()
    if own is None:
        raise NoSuchTaskError("this process is no task of a TFCluster: run it in one of its pods")
    if own.job == EVALUATOR:
        raise NoSuchTaskError("an evaluator is no task of the ClusterSpec, so there is nothing to serve")
    port = int(own.address.rpartition(":")[2])
    _check_that_the_port_is_free(port)
    server = tensorflow_api.load("serve").distribute.Server(
        {own.job: {own.index: own.address}},
        job_name=own.job,
        task_index=own.index,
        protocol=resolver.rpc_layer,
        start=True,
    )
    print(f"serving {own} on port {port}", flush=True)  # noqa: T201 - the log of the pod
    del server  # TensorFlow keeps a started server for the life of the process
    stop.wait()


def _end_at_once(number: int, frame: FrameType | None) -> None:
    del frame
    sys.stderr.write(f"ending on {signal.Signals(number).name}\n")
    sys.stderr.flush()
    # NB: TensorFlow's threads do not end by themselves, and the server holds nothing that must be saved.
    os._exit(0)


def _check_that_the_port_is_free(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise PortTakenError(
                f"port {port} of this task cannot be opened ({error.strerror}): another process of the pod listens on it"
            ) from error
