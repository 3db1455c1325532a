"""The task server: TensorFlow's ``tf.distribute.Server`` for this pod's task.

A server needs to know nobody but itself, because the coordinator tells it of the others when it connects; so a resize
never touches the pods that stay.
"""

from __future__ import annotations

import os
import signal
import socket
from types import FrameType
from typing import NoReturn

from tfcluster_resolver import tensorflow_api
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.errors import PortTakenError, ServeError, TaskIdentityError
from tfcluster_resolver.waiting import PortState, host_and_port, port_state


def serve(membership: Membership) -> NoReturn:
    """Run the task server until SIGTERM or SIGINT; the process then exits with 128 plus the signal's number.

    Args:
        membership: the cluster; only the own task's entry is used.

    Raises:
        TaskIdentityError: the process is not in a TFCluster's pod.
        AddressError: the own address is not "host:port".
        PortTakenError: something else listens on the task's port.
        ServeError: TensorFlow cannot start the server.
        TensorFlowNotFoundError: TensorFlow is not installed.
    """
    # TensorFlow's Server.join() never returns and keeps Python's handlers from running, and process 1 of a container
    # ignores a signal that it has no handler for; so the handler comes before the slow import and ends the process.
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    own = membership.own
    if own is None:
        raise TaskIdentityError(
            "this process is not in a TFCluster's pod (TFCLUSTER_JOB, TFCLUSTER_TASK_INDEX and TFCLUSTER_ADDRESS are "
            "unset), so there is no task to serve"
        )
    _, port = host_and_port(own.address)
    _check_port(port)
    tensorflow = tensorflow_api.load("the task server")
    try:
        server = tensorflow.distribute.Server(
            {own.job: {own.index: own.address}},
            job_name=own.job,
            task_index=own.index,
            protocol=membership.view.rpc_layer,
        )
    except tensorflow.errors.OpError as error:
        raise ServeError(f"TensorFlow cannot serve {own} on port {port}: {error.message}") from error
    view = membership.view
    print(f"serving {own} of {view.namespace}/{view.name} at {server.target}, port {port}", flush=True)  # noqa: T201 - the log's one line
    # NB: a signal just before a wait on a lock, or one that a thread of TensorFlow takes, would not end that wait; a
    # byte in the socket does, and then the handler runs.
    while True:
        woken.recv(1)


def _check_port(port: int) -> None:
    """Fail in milliseconds with a clear text, instead of after TensorFlow's import with an unclear one."""
    state = port_state(port)
    if state is PortState.FORBIDDEN:
        raise ServeError(f"this user may not listen on port {port}: choose one above 1023 in the TFCluster")
    if state is PortState.TAKEN:
        raise PortTakenError(
            f"port {port} is taken: another process of this pod listens there, so either that one is the task's server "
            "already, or the TFCluster needs another port"
        )


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    # NB: not sys.exit(): taking TensorFlow's server down can hang, and the coordinator copes with a vanished one.
    os._exit(128 + number)
