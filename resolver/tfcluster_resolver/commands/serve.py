"""The task server: TensorFlow's ``tf.distribute.Server`` for this pod's task.

A server needs to know only itself, because the coordinator tells it of the others when it connects; so a resize never
touches the pods that stay.  The server ends by a signal, or in a task that leaves when the coordinator has released it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Final, NoReturn

from tfcluster_resolver import contract, device_names
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.cluster import Task
from tfcluster_resolver.commands import command
from tfcluster_resolver.errors import NoSuchTaskError, PortTakenError, ServeError, ViewError
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.waiting import port_state
from tfcluster_resolver.waiting.addresses import host_and_port

#: Seconds between two checks for the coordinator's release.
_LOOK_EVERY: Final = 0.5
#: A release file older than this (seconds) is outdated if the view does not list the task as leaving.
_STALE_AFTER: Final = 180.0


def serve(resolver: TFClusterResolver | None = None) -> NoReturn:
    """Run the task server, ``tf.distribute.Server``, until the process ends.

    In the main thread SIGTERM and SIGINT end the process immediately, with 128 plus the signal's number, because
    ``join()`` of TensorFlow blocks Python's handlers; another thread leaves both to the program.  In a task that
    leaves, the process ends with 0 when the coordinator has released it, as :func:`tfcluster_resolver.resize` does.

    Args:
        resolver: whose task; by default the one that this pod is.  The server listens on the port of the task's
            address, on every network interface.

    Raises:
        TaskIdentityError: the task to serve is unknown: the process is not in a TFCluster's pod, and the resolver does
            not have a task; or the pod's environment names its task incompletely.
        NoSuchTaskError: the view does not show the task that the resolver speaks for.
        AddressError: the task's address is not "host:port".
        PortTakenError: something else listens on the task's port.
        ServeError: TensorFlow cannot start the server, or would end this process if it were asked to, as it does for a
            job name with a hyphen.
        TensorFlowNotFoundError: TensorFlow is not installed.
        ViewError: the view is missing, unreadable, malformed or too new.
        ArgumentTypeError: ``resolver`` is not a TFClusterResolver.
    """
    speaker = TFClusterResolver() if resolver is None else resolver
    view, own = command.seen_by(speaker, "there is no task to serve")
    live = speaker._live_again()  # noqa: SLF001 - of this package; a snapshot would never say that the task leaves
    port = _free_port(own)
    release = contract.released_file(port)
    _forget(release)  # it was for a server that ran before, or for a task that is declared again
    with _signals_end_the_process() as woken:
        tensorflow = tensorflow_api.load("the task server")
        try:
            task = {own.job: {own.index: own.address}}
            server = tensorflow.distribute.Server(task, job_name=own.job, task_index=own.index, protocol=view.rpc_layer)
        except (tensorflow.errors.OpError, TypeError, ValueError) as error:
            reason = getattr(error, "message", error)
            raise ServeError(f"TensorFlow cannot serve {own} at {own.address}: {reason}") from error
        command.say(f"serving {own} of {view.namespace}/{view.name} at {server.target}, port {port}")
        # A signal just before a wait on a lock, or one that a thread of TensorFlow takes, would not end that wait; a
        # byte in the socket does, and then the handler runs.
        woken.settimeout(_LOOK_EVERY)
        while True:
            with contextlib.suppress(TimeoutError):
                woken.recv(1)
            if threading.current_thread() is threading.main_thread() and _is_released(release, live, own):
                command.say(f"{own} is being removed, and the coordinator has released it")
                # Not sys.exit(): taking TensorFlow's server down can hang, and the coordinator copes without it.
                os._exit(0)


def _forget(release: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(release)  # noqa: PTH108 - no pathlib: this is looked at often


def _is_released(release: str, live: TFClusterResolver, own: Task) -> bool:
    """Return whether the task leaves and the coordinator has released it."""
    try:
        age = time.time() - os.stat(release).st_mtime  # noqa: PTH116 - likewise
        leaves = live.membership().is_leaving(own.job, own.index)
    except (OSError, ViewError):
        return False
    # The coordinator can see the change before this pod's view has it; a much older release is outdated.
    if not leaves and age > _STALE_AFTER:
        _forget(release)
    return leaves


def _free_port(own: Task) -> int:
    """Return the port, or fail in milliseconds with a clear message, mainly for names that make TensorFlow abort."""
    if not device_names.is_job_name(own.job):
        raise ServeError(
            f"TensorFlow cannot serve a job named {own.job!r}: a name is a letter, then letters, digits and _; rename "
            "the job in the TFCluster"
        )
    if not own.address:
        raise NoSuchTaskError(f"{own} has no address in this view, so it cannot be served")
    _, port = host_and_port(own.address)
    state = port_state(port)
    if state == "forbidden":
        raise ServeError(f"this user cannot listen on port {port}: choose one above 1023 in the TFCluster")
    if state == "taken":
        raise PortTakenError(
            f"port {port} is taken: another process of this pod listens there, so either that one is the task's server "
            "already, or the TFCluster needs another port"
        )
    return port


@contextlib.contextmanager
def _signals_end_the_process() -> Iterator[socket.socket]:
    """Let SIGTERM and SIGINT end this process while TensorFlow serves; the socket wakes up at any signal."""
    # TensorFlow's Server.join() never returns and keeps Python's handlers from running, and process 1 of a container
    # ignores a signal without a handler; so the handlers are set before the slow import and end the process.
    woken, waker = socket.socketpair()
    with woken, waker:
        if threading.current_thread() is not threading.main_thread():
            yield woken
            return
        waker.setblocking(False)
        before = signal.set_wakeup_fd(waker.fileno())
        ending = (signal.SIGTERM, signal.SIGINT)
        handlers = {number: signal.signal(number, command.end_by_signal) for number in ending}
        try:
            yield woken
        finally:
            for number, handler in handlers.items():
                if handler is not None:  # what was installed without Python cannot be installed again by it
                    signal.signal(number, handler)
            signal.set_wakeup_fd(before)


SERVE: Final = command.Command(
    brief="run this task's TensorFlow server until SIGTERM",
    description=f"Run tf.distribute.Server for this task, on the port of ${contract.ENV_ADDRESS}. The task is ready "
    "when the port accepts connections. SIGTERM ends it immediately, also as process 1 of a container. In a task that "
    "leaves it ends with 0 when the coordinator has released it.",
    codes=(*command.READING, command.NO_TENSORFLOW, command.NO_SERVER),
    run=lambda options: serve(TFClusterResolver(directory=options.directory)),
)
