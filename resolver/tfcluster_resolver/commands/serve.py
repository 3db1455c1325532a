"""The task server: TensorFlow's ``tf.distribute.Server`` for this pod's task.

A server needs to know nobody but itself, because the coordinator tells it of the others when it connects; so a resize
never touches the pods that stay.  This module decides what can be served, and how the server ends: by a signal, or in a
task that leaves when the coordinator has let go of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tfcluster_resolver import contract, device_names
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.commands import exit_codes
from tfcluster_resolver.commands.command import Command
from tfcluster_resolver.commands.reading import read, seen_by, task_of, view_directory
from tfcluster_resolver.errors import NoSuchTaskError, PortTakenError, ServeError, ViewError
from tfcluster_resolver.waiting.own_port import PortState, port_state
from tfcluster_resolver.waiting.reachability import host_and_port

if TYPE_CHECKING:
    from tfcluster_resolver.resolver import TFClusterResolver

#: Seconds between two looks for the coordinator's word.
_LOOK_EVERY: Final = 0.5
#: Seconds after which a view that does not say that the task leaves is believed: a kubelet is slower without a nudge.
_STALE_AFTER: Final = 180.0


def serve(resolver: TFClusterResolver | None = None) -> NoReturn:
    """Run the task server, ``tf.distribute.Server``, until the process ends.

    In the main thread SIGTERM and SIGINT end the process at once, with 128 plus the signal's number: TensorFlow's own
    ``join()`` would keep Python from hearing them.  In a task that leaves, the process ends with 0 when the coordinator
    has let go of it, as :func:`~tfcluster_resolver.elastic.resize` does.  In another thread it leaves both to the
    program.

    Args:
        resolver: whose task; by default the one that this pod is.  The server listens on the port of the task's
            address, on every network interface.

    Raises:
        TaskIdentityError: there is no task to serve: the process is not in a TFCluster's pod, and no resolver speaks
            for a task; or the pod's environment names its task incompletely.
        NoSuchTaskError: the view does not show the task that the resolver speaks for.
        AddressError: the task's address is not "host:port".
        PortTakenError: something else listens on the task's port.
        ServeError: TensorFlow cannot start the server, or would end this process if it were asked to, as it does for a
            job name with a hyphen.
        TensorFlowNotFoundError: TensorFlow is not installed.
        ViewError: the view is missing, unreadable, malformed or too new.
        ArgumentTypeError: it is no TFClusterResolver.
    """
    seen = seen_by(resolver)
    # NB: a snapshot would never say that the task leaves.
    live = None if resolver is None else resolver._live_again()  # noqa: SLF001 - of this package
    _serve(seen, lambda: read(view_directory())[0] if live is None else live.membership())


def _serve(membership: Membership, look: Callable[[], Membership]) -> NoReturn:
    own = task_of(membership, "there is no task to serve")
    _check_task(own)
    port = _free_port(own)
    release = _Release(contract.released_file(port), own, look)
    release.forget()
    with _signals_end_the_process() as woken:
        server = _start(own, membership.view)
        view = membership.view
        print(f"serving {own} of {view.namespace}/{view.name} at {server.target}, port {port}", flush=True)  # noqa: T201 - the log's one line
        # NB: a signal just before a wait on a lock, or one that a thread of TensorFlow takes, would not end that wait;
        # a byte in the socket does, and then the handler runs.
        woken.settimeout(_LOOK_EVERY)
        while True:
            with contextlib.suppress(TimeoutError):
                woken.recv(1)
            if threading.current_thread() is threading.main_thread() and release.has_come():
                print(f"{own} leaves, and the coordinator has let go of it", flush=True)  # noqa: T201 - the log's last line
                _end_with(0)


class _Release:
    """The coordinator's word that it has let go of this task.

    Args:
        path: the file that says so.
        own: the task.
        look: reads the cluster.
    """

    def __init__(self, path: str, own: Task, look: Callable[[], Membership]) -> None:
        self._path = path
        self._own = own
        self._look = look

    def forget(self) -> None:
        """Take the word back: it was for a server that ran before, or for a task that is declared again."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108 - no pathlib: this is looked at often

    def has_come(self) -> bool:
        """Tell whether the task leaves and the coordinator has let go of it."""
        try:
            age = time.time() - os.stat(self._path).st_mtime  # noqa: PTH116 - likewise
        except OSError:
            return False
        try:
            if self._look().is_leaving(self._own.job, self._own.index):
                return True
        except ViewError:
            return False
        # NB: the coordinator may know a while before this pod's view says so; later than that it was for another time.
        if age > _STALE_AFTER:
            self.forget()
        return False


def _start(own: Task, view: contract.View) -> Any:
    tensorflow = tensorflow_api.load("the task server")
    try:
        return tensorflow.distribute.Server(
            {own.job: {own.index: own.address}}, job_name=own.job, task_index=own.index, protocol=view.rpc_layer
        )
    except (tensorflow.errors.OpError, TypeError, ValueError) as error:
        raise ServeError(
            f"TensorFlow cannot serve {own} at {own.address}: {getattr(error, 'message', error)}"
        ) from error


def _check_task(own: Task) -> None:
    """Refuse what cannot be served in milliseconds, above all the names for which TensorFlow aborts the process."""
    if not device_names.is_job_name(own.job):
        raise ServeError(
            f"TensorFlow cannot serve a job named {own.job!r}: a name is a letter, then letters, digits and _; rename "
            "the job in the TFCluster"
        )
    if not own.address:
        raise NoSuchTaskError(f"{own} has no address in this view, so it cannot be served")


def _free_port(own: Task) -> int:
    """Fail in milliseconds with a clear text, instead of after TensorFlow's import with an unclear one."""
    _, port = host_and_port(own.address)
    state = port_state(port)
    if state is PortState.FORBIDDEN:
        raise ServeError(f"this user may not listen on port {port}: choose one above 1023 in the TFCluster")
    if state is PortState.TAKEN:
        raise PortTakenError(
            f"port {port} is taken: another process of this pod listens there, so either that one is the task's server "
            "already, or the TFCluster needs another port"
        )
    return port


@contextlib.contextmanager
def _signals_end_the_process() -> Iterator[socket.socket]:
    """Let SIGTERM and SIGINT end this process while TensorFlow serves; give a socket that wakes up at any signal.

    TensorFlow's Server.join() never returns and keeps Python's handlers from running, and process 1 of a container
    ignores a signal that it has no handler for; so the handlers come before the slow import and end the process.
    """
    woken, waker = socket.socketpair()
    with woken, waker:
        if threading.current_thread() is not threading.main_thread():
            yield woken
            return
        waker.setblocking(False)
        before = signal.set_wakeup_fd(waker.fileno())
        handlers = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield woken
        finally:
            for number, handler in handlers.items():
                if handler is not None:  # what was installed without Python cannot be installed again by it
                    signal.signal(number, handler)
            signal.set_wakeup_fd(before)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    _end_with(exit_codes.SIGNAL + number)


def _end_with(code: int) -> NoReturn:
    # NB: not sys.exit(): taking TensorFlow's server down can hang, and the coordinator copes with a vanished one.
    os._exit(code)


def _run(options: argparse.Namespace) -> NoReturn:
    _serve(read(options.directory)[0], lambda: read(options.directory)[0])


SERVE: Final = Command(
    brief="run this task's TensorFlow server until SIGTERM",
    description=f"Run tf.distribute.Server for this task, on the port of ${contract.ENV_ADDRESS}. The task is ready "
    "when the port accepts connections. SIGTERM ends it at once, also as process 1 of a container. In a task that "
    "leaves it ends with 0 when the coordinator has let go of it.",
    codes=(*exit_codes.READING, exit_codes.NO_TENSORFLOW, exit_codes.NO_SERVER),
    run=_run,
)
