"""The meeting of a cluster's tasks before TensorFlow starts: all of them start with the same epoch, or none does.

MultiWorkerMirroredStrategy lacks such a step: its constructor blocks the whole interpreter until the tasks of *its*
ClusterSpec are there, so a task that started with an older view would hang, and a newer one fail.

The leader, the first task of the ClusterSpec as TensorFlow has it, listens on its own port, which is free until
TensorFlow takes it.  Each other task sends it a line with the epoch that it sees, and again when that changes; once all
see the leader's epoch, the leader answers "go" with it.  A task that has sent an epoch starts with it on "go", whatever
it sees by then: the next check of the epochs finds that.  Each task that waits has its own port open, so that those
which still train can see that it is there.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from typing import Final

from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import Cause, MissingTask, PortTakenError, TasksUnreachableError
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.waiting.addresses import host_and_port

_HELLO: Final = "tfcluster-meeting"
_GO: Final = "go"
#: The longest line that is listened to, in bytes; a longer one is not from a task.
_LONGEST: Final = 512
#: Seconds between two checks of the view, and between two attempts to reach the leader.
_LOOK: Final = 0.1
#: The longest attempt to reach the leader, in seconds.
_ATTEMPT: Final = 3.0


def meet(resolver: TFClusterResolver, *, timeout: float) -> TFClusterResolver:
    """Wait until all tasks have called this and see one epoch; return a snapshot at it, or one without this task."""
    deadline = time.monotonic() + timeout
    with contextlib.closing(_Door()) as door:
        while True:
            now = resolver.snapshot()
            tasks = declared(now)
            own = own_in(tasks, resolver)
            if own is None or len(tasks) == 1:
                return now
            if own == tasks[0]:
                met = _lead(resolver, own, door, deadline)
            else:
                door.open(own)
                door.turn_away()
                met = _come(resolver, own, tasks[0], deadline)
            if met is not None:
                return met


def declared(snapshot: TFClusterResolver) -> list[Task]:
    """List the tasks of the view; the own one only if it is still declared."""
    return list(Membership(view=snapshot.membership().view, own=None).tasks())


def own_in(tasks: list[Task], resolver: TFClusterResolver) -> Task | None:
    """Find the resolver's own task in a sequence, or None."""
    return next((task for task in tasks if (task.job, task.index) == (resolver.task_type, resolver.task_id)), None)


def _lead(resolver: TFClusterResolver, own: Task, door: _Door, deadline: float) -> TFClusterResolver | None:
    """Wait for the others on the own port; None where this task no longer leads."""
    while (error := door.open(own)) is not None:
        if time.monotonic() > deadline:
            port = host_and_port(own.address)[1]
            raise PortTakenError(f"{own} cannot listen on its port {port}: {error.strerror}") from error
        time.sleep(_LOOK)
    while True:
        said = door.listen(_LOOK)
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
        # Read all that a guest sent: closing the socket with unread data would reset it and lose our answer.
        with contextlib.suppress(OSError):
            while guest.recv(_LONGEST):
                pass


def _come(resolver: TFClusterResolver, own: Task, leader: Task, deadline: float) -> TFClusterResolver | None:
    """Connect to the leader and wait for its answer; None if this attempt ended without one."""
    with contextlib.suppress(OSError, UnicodeError):
        with socket.create_connection(host_and_port(leader.address), _ATTEMPT) as connection:
            connection.settimeout(_LOOK)
            met = _await_word(resolver, own, leader, _Lines(connection), deadline)
        if met is not None:
            return met
    # An older process of the leader might still train, and answers otherwise or not at all.
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
    """A connection, and the last whole line that it received."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self.last = ""

    def say(self, line: str) -> None:
        self._connection.sendall(f"{line}\n".encode())

    def listen(self) -> bool:
        """Read the available data, with the connection's timeout; False after the end, or if it is not a line."""
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


class _Door:
    """The own port of a task that waits, open from its first attempt to the last, and what its guests said last."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._server: socket.socket | None = None
        self._address = ""
        self._guests: dict[socket.socket, _Lines] = {}

    def open(self, own: Task) -> OSError | None:
        """Open the port, or return why it cannot be opened."""
        if self._server is not None and own.address == self._address:
            return None
        if self._server is not None:
            self._drop(self._server)
            self._server = None
        _, port = host_and_port(own.address)
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            self._server = socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=both)
        except OSError as error:
            return error
        self._server.setblocking(False)
        self._address = own.address
        self._selector.register(self._server, selectors.EVENT_READ)
        return None

    def listen(self, seconds: float) -> dict[socket.socket, str]:
        """Read the available data; each guest's last line."""
        ready = {key.fileobj for key, _ in self._selector.select(seconds)}
        if self._server is not None and self._server in ready:
            with contextlib.suppress(OSError):
                while True:
                    guest, _ = self._server.accept()
                    guest.setblocking(False)
                    self._guests[guest] = _Lines(guest)
                    self._selector.register(guest, selectors.EVENT_READ)
        for guest in [guest for guest in self._guests if guest in ready and not self._guests[guest].listen()]:
            self._drop(guest)
        return {guest: lines.last for guest, lines in self._guests.items()}

    def turn_away(self) -> None:
        """Close the connections of tasks that only checked whether the port is open."""
        for guest in self.listen(0):
            self._drop(guest)

    def _drop(self, one: socket.socket) -> None:
        self._selector.unregister(one)
        self._guests.pop(one, None)
        one.close()

    def close(self) -> None:
        for one in (*self._guests, *filter(None, (self._server,))):
            self._drop(one)
        self._selector.close()
