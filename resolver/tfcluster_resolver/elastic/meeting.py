"""Where the tasks of a cluster meet before TensorFlow starts: all of them go on with the same epoch, or none does.

It decides who leads (the first task of the ClusterSpec, TensorFlow's own choice), when everybody is there, and which
epoch all start with.  MultiWorkerMirroredStrategy has no such step: its constructor blocks the whole interpreter until
the tasks of *its* ClusterSpec are there, so a task that started with an older view would hang, and a newer one fail.

The leader listens on its own port, which is free until TensorFlow takes it.  Each other task tells it, in a line, which
epoch it sees, and again when that changes; once all see the leader's epoch, the leader answers "go" with it.  A task
that has said an epoch starts with it on "go", whatever it sees by then: the next check of the epochs finds that.
Whoever waits has its own port open, so that those who still train can tell that it is there.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from typing import TYPE_CHECKING, Final, Self

from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import PortTakenError, TasksUnreachableError
from tfcluster_resolver.waiting.reachability import Cause, MissingTask, host_and_port

if TYPE_CHECKING:
    from tfcluster_resolver.resolver import TFClusterResolver

_HELLO: Final = "tfcluster-meeting"
_GO: Final = "go"
#: The longest line that is listened to, in bytes; a longer one is no task's.
_LONGEST: Final = 512
#: Seconds between two looks at the view, and between two attempts to reach the leader.
_LOOK: Final = 0.1
#: Seconds that one attempt to reach the leader may take.
_ATTEMPT: Final = 3.0


def meet(resolver: TFClusterResolver, *, timeout: float) -> TFClusterResolver:
    """Wait until every task of the cluster has called this and sees the same epoch.

    Args:
        resolver: a live one, which follows the view.
        timeout: how long to wait, in seconds.

    Returns:
        A snapshot at an epoch that all tasks start with; or one in which the own task is no longer declared, at once.

    Raises:
        TasksUnreachableError: some tasks did not come in time; the leader knows which.
        PortTakenError: this task leads, and something else listens on its port.
        AddressError: an address is not "host:port".
        ViewError: the view cannot be read.
    """
    deadline = time.monotonic() + timeout
    with _OpenPort() as port:
        while True:
            now = resolver.snapshot()
            tasks = declared(now)
            own = own_in(tasks, resolver)
            if own is None or len(tasks) == 1:
                return now
            if own == tasks[0]:
                port.close()
                met = _lead(resolver, own, deadline)
            else:
                port.open(own)
                met = _come(resolver, own, tasks[0], deadline)
            if met is not None:
                return met


def declared(snapshot: TFClusterResolver) -> list[Task]:
    """List the tasks of the view; the own one only if it is to stay."""
    return list(Membership(view=snapshot.membership().view, own=None).tasks())


def own_in(tasks: list[Task], resolver: TFClusterResolver) -> Task | None:
    """Find the resolver's own task among some; None where it is not there."""
    return next((task for task in tasks if (task.job, task.index) == (resolver.task_type, resolver.task_id)), None)


def _lead(resolver: TFClusterResolver, own: Task, deadline: float) -> TFClusterResolver | None:
    """Wait for the others on the own port; None where this task no longer leads."""
    with _Reception(own, deadline) as reception:
        while True:
            said = reception.listen()
            now = resolver.snapshot()
            tasks = declared(now)
            if own not in tasks[:1]:
                return None
            epoch = _epoch_text(now)
            ready = {line.removeprefix(f"{_HELLO} {epoch} "): guest for guest, line in said.items()}
            missing = [task for task in tasks[1:] if str(task) not in ready]
            if not missing:
                _send_off([ready[str(task)] for task in tasks[1:]], epoch)
                return now
            if time.monotonic() > deadline:
                raise TasksUnreachableError(
                    f"{len(missing)} of {len(tasks) - 1} other tasks did not come in time to start with epoch "
                    f"{now.epoch}; look at the pods of these and at their logs:\n"
                    + "\n".join(f"  {task} at {task.address}" for task in missing),
                    tuple(MissingTask(*task, Cause.TIMED_OUT) for task in missing),
                )


def _send_off(guests: list[socket.socket], epoch: str) -> None:
    for guest in guests:
        guest.settimeout(_ATTEMPT)
        with contextlib.suppress(OSError):
            guest.sendall(f"{_GO} {epoch}\n".encode())
            guest.shutdown(socket.SHUT_WR)
    for guest in guests:
        # NB: what a guest said meanwhile is read to the end: closed unread, it would reset the connection and the word.
        with contextlib.suppress(OSError):
            while guest.recv(_LONGEST):
                pass


def _come(resolver: TFClusterResolver, own: Task, leader: Task, deadline: float) -> TFClusterResolver | None:
    """Go to the leader and wait for its word; None where this attempt ended without."""
    with contextlib.suppress(OSError, UnicodeError):
        with socket.create_connection(host_and_port(leader.address), _ATTEMPT) as connection:
            connection.settimeout(_LOOK)
            met = _await_word(resolver, own, leader, _Lines(connection), deadline)
        if met is not None:
            return met
    # NB: an older process of the leader may still train, and answers otherwise or not at all.
    if time.monotonic() > deadline:
        raise TasksUnreachableError(
            f"{leader} at {leader.address}, which leads the start, did not say in time that all tasks are there: "
            "look at its log; if it still trains, let it call check() more often or give meet() a longer timeout",
            (MissingTask(*leader, Cause.TIMED_OUT),),
        )
    time.sleep(_LOOK)
    return None


def _await_word(
    resolver: TFClusterResolver, own: Task, leader: Task, lines: _Lines, deadline: float
) -> TFClusterResolver | None:
    said: dict[str, TFClusterResolver] = {}
    while time.monotonic() < deadline:
        now = resolver.snapshot()
        if not {own, leader} <= set(declared(now)):
            return None
        epoch = _epoch_text(now)
        if epoch not in said:
            said[epoch] = now
            lines.say(f"{_HELLO} {epoch} {own}")
        goes_on = lines.listen()
        word, _, agreed = lines.last.partition(" ")
        if word == _GO and agreed in said:
            return said[agreed]
        if not goes_on:
            return None
    return None


def _epoch_text(snapshot: TFClusterResolver) -> str:
    uid, epoch = snapshot.membership().mark
    return f"{uid or '-'}/{epoch}"


class _Lines:
    """A connection, and the last whole line that came over it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self.last = ""

    def say(self, line: str) -> None:
        """Send a line."""
        self._connection.sendall(f"{line}\n".encode())

    def listen(self) -> bool:
        """Take what has come, waiting as the connection's time-out says; False where nothing more will, or no line."""
        try:
            part = self._connection.recv(_LONGEST)
        except (BlockingIOError, TimeoutError):
            return True
        except OSError:
            return False
        *lines, self._rest = (self._rest + part).split(b"\n")
        if lines:
            self.last = lines[-1].decode(errors="replace")
        return bool(part) and len(self._rest) < _LONGEST


class _Reception:
    """The leader's port, and what the guests there said last."""

    def __init__(self, own: Task, deadline: float) -> None:
        self._selector = selectors.DefaultSelector()
        self._server = _listen(own, deadline)
        self._selector.register(self._server, selectors.EVENT_READ)
        self._guests: dict[socket.socket, _Lines] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._selector.close()
        for one in (self._server, *self._guests):
            one.close()

    def listen(self) -> dict[socket.socket, str]:
        """Take what comes for a moment; each guest's last line."""
        ready = {key.fileobj for key, _ in self._selector.select(_LOOK)}
        if self._server in ready:
            guest, _ = self._server.accept()
            guest.setblocking(False)
            self._guests[guest] = _Lines(guest)
            self._selector.register(guest, selectors.EVENT_READ)
        for guest in [guest for guest in self._guests if guest in ready and not self._guests[guest].listen()]:
            self._selector.unregister(guest)
            del self._guests[guest]
            guest.close()
        return {guest: lines.last for guest, lines in self._guests.items()}


class _OpenPort:
    """The own port of a task that waits, open from its first attempt to the last; who connects there hears nothing."""

    def __init__(self) -> None:
        self._server: socket.socket | None = None
        self._address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self, own: Task) -> None:
        """Open the port where nothing has it, and let go of those who looked whether it is open."""
        if own.address != self._address:
            self.close()
        if self._server is None:
            with contextlib.suppress(OSError):
                self._server, self._address = _server(own), own.address
                self._server.setblocking(False)
        if self._server is not None:
            with contextlib.suppress(OSError):
                while True:
                    self._server.accept()[0].close()

    def close(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.close()
        self._server = None


def _server(own: Task) -> socket.socket:
    _, port = host_and_port(own.address)
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=both)


def _listen(own: Task, deadline: float) -> socket.socket:
    while True:
        try:
            return _server(own)
        except OSError as error:
            if time.monotonic() > deadline:
                _, port = host_and_port(own.address)
                raise PortTakenError(f"{own} cannot listen on its port {port}: {error.strerror}") from error
            time.sleep(_LOOK)
