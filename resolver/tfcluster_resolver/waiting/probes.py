"""Attempts to reach many tasks together: when a task counts as reached, and how long and how often each is tried.

One thread keeps many connections under way and waits for none of them, so no task that is silent hides another one, and
nothing outlives its time.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster_resolver.errors import Cause, MissingTask
from tfcluster_resolver.waiting.addresses import Address, LookUp, descriptors, host_and_port, look_ups, numeric

#: How HTTP/2, and so gRPC, begins (RFC 9113, 3.4), with the settings that must follow: none.
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
#: A gRPC server answers with a frame of settings: bytes of its header, and its kind.
_FRAME_HEADER: Final = 9
_SETTINGS: Final = 4

#: Connections under way at one time, if the process can have that many descriptors.
_AT_ONCE: Final = 2048
#: The longest attempt, in seconds; a running pod answers in milliseconds.
_ATTEMPT: Final = 3.0
#: The longest first attempt at a task, in seconds, while others wait for it; it doubles with each further one.
_TURN: Final = 0.25
#: Seconds between two attempts, first and at most: the start of a cluster is quick to notice, a long wait is cheap.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
#: The longest check of every task, in seconds, if there are descriptors for all.
_LOOK_ONCE: Final = 1.0
#: Seconds between two checks of the look-ups in progress.
_NAMES: Final = 0.01
_CAUSES: Final = {errno.ECONNREFUSED: Cause.REFUSED, errno.ETIMEDOUT: Cause.TIMED_OUT}
#: The errors of socket(2) when descriptors or buffers are used up.
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: The connections are checked again after this number of ended delays.
_BATCH: Final = 500


@dataclass(slots=True, eq=False)
class _Peer:
    """An address that is to answer."""

    host: str
    port: int
    wanted: bool = True
    #: How many attempts have ended, and why the last one failed.
    attempts: int = 0
    cause: Cause | None = None
    #: The IP address and port that answered.
    reached: tuple[str, int] | None = None
    #: When the current attempt began, and its connections, one per IP address, with the received data.
    began: float = 0.0
    connections: dict[socket.socket, bytes] = field(default_factory=dict)


class Probes:
    """Attempts to reach tasks, repeated until each has answered; with ``grpc`` as a gRPC server does."""

    def __init__(self, *, grpc: bool = False) -> None:
        self._grpc = grpc
        self._tasks: Sequence[tuple[str, int, str]] = ()
        self._peers: dict[str, _Peer] = {}
        #: Each IP address and port that was tried.
        self.tried: set[tuple[str, int]] = set()
        #: Peers that have not answered, and those of them without an ended attempt.
        self._silent: set[_Peer] = set()
        self._untried: set[_Peer] = set()
        #: Silent peers by what they wait for: the end of a delay; a name, or that of the Service; a free descriptor;
        #: the other side, in the order in which these attempts began.
        self._pausing: list[tuple[float, int, _Peer]] = []
        self._naming: dict[_Peer, LookUp] = {}
        self._queue: deque[tuple[_Peer, tuple[Address, ...]]] = deque()
        self._trying: dict[_Peer, None] = {}
        self._names_due = 0.0
        self._open = 0
        self._at_once = descriptors(_AT_ONCE, part=2)
        # This kind works without a descriptor of its own, so also if the process cannot open another one.
        self._selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()

    def close(self) -> None:
        self.want(())
        self._selector.close()

    def want(self, tasks: Sequence[tuple[str, int, str]]) -> None:
        """Set the tasks that are to answer from now on; those that did already are not asked again."""
        if tasks == self._tasks:
            return
        parts = {address: host_and_port(address) for _, _, address in tasks}
        self._tasks = tasks
        for address in self._peers.keys() - parts.keys():
            self._drop(self._peers.pop(address))
        for address, part in parts.items():
            if address not in self._peers:
                peer = self._peers[address] = _Peer(*part)
                self._silent.add(peer)
                self._untried.add(peer)
                self._pause(peer, 0.0)

    def missing(self) -> tuple[MissingTask, ...]:
        """List the tasks that have not answered, with the cause of each, in the order of the tasks."""
        return tuple(
            MissingTask(
                job, index, address, peer.cause or (Cause.UNRESOLVED if peer in self._naming else _silence(peer))
            )
            for job, index, address in self._tasks
            if (peer := self._peers[address]) in self._silent
        )

    def reached(self) -> dict[tuple[str, int], tuple[str, int]]:
        """Return the tasks that have answered, by job and index, each with the IP address and port that did."""
        return {
            (job, index): peer.reached
            for job, index, address in self._tasks
            if (peer := self._peers[address]).reached is not None
        }

    def look_once(self) -> None:
        """Try each task once, for about a second."""
        self._probe(self._untried, _LOOK_ONCE + _TURN * (len(self._untried) // self._at_once))

    def run(self, seconds: float) -> None:
        """Probe until every task has answered, for some seconds at most."""
        self._probe(self._silent, seconds)

    def _probe(self, left: set[_Peer], seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            self._end_pauses(now)
            if self._naming and now >= self._names_due:
                self._take_names()
                self._names_due = time.monotonic() + _NAMES
            self._end_turns(now)
            while self._queue and self._open < self._at_once:
                self._connect(*self._queue.popleft())
            if not left or now >= until:
                return
            for key, _ in self._selector.select(self._idle(until) - now):
                self._hear(key.data, key.fileobj)

    def _idle(self, until: float) -> float:
        times = [until]
        if self._pausing:
            times.append(self._pausing[0][0])
        if self._naming:
            times.append(self._names_due)
        if self._trying:
            times.append(self._turn_ends(next(iter(self._trying))))
        return min(times)

    def _pause(self, peer: _Peer, seconds: float) -> None:
        heapq.heappush(self._pausing, (time.monotonic() + seconds, id(peer), peer))

    def _end_pauses(self, now: float) -> None:
        for _ in range(_BATCH):
            if not self._pausing or self._pausing[0][0] > now:
                return
            peer = heapq.heappop(self._pausing)[2]
            if not peer.wanted:
                continue
            if found := numeric(peer.host):
                self._queue.append((peer, found))
            else:
                self._naming[peer] = look_ups.begin(peer.host)

    def _take_names(self) -> None:
        """Continue with each name that has been looked up."""
        for peer, name in [pair for pair in self._naming.items() if pair[1].addresses is not None]:
            del self._naming[peer]
            look_ups.release(name)
            service = peer.host.partition(".")[2]
            if name.host != peer.host:
                self._fail(peer, Cause.NO_POD if name.addresses else Cause.UNRESOLVED)
            elif name.addresses:
                self._queue.append((peer, name.addresses))
            elif "." in service:
                # The name of the headless Service resolves while any pod of the cluster has an address.
                self._naming[peer] = look_ups.begin(service)
            else:
                self._fail(peer, Cause.UNRESOLVED)

    def _turn_ends(self, peer: _Peer) -> float:
        return peer.began + (min(_TURN * 2 ** min(peer.attempts, 9), _ATTEMPT) if self._queue else _ATTEMPT)

    def _end_turns(self, now: float) -> None:
        while self._trying and self._turn_ends(peer := next(iter(self._trying))) <= now:
            self._fail(peer, _silence(peer))

    def _connect(self, peer: _Peer, addresses: tuple[Address, ...]) -> None:
        if not peer.wanted:
            return
        peer.began = time.monotonic()
        self._trying[peer] = None
        error = 0
        for family, (host, *rest) in addresses:
            try:
                one = socket.socket(family, socket.SOCK_STREAM)
            except OSError as refusal:
                error = refusal.errno or errno.EIO
                continue
            one.setblocking(False)
            peer.connections[one] = b""
            self._open += 1
            self.tried.add((host, peer.port))
            error = one.connect_ex((host, peer.port, *rest))
            if error in {0, errno.EINPROGRESS}:
                self._selector.register(one, selectors.EVENT_WRITE, peer)
            else:
                self._close(peer, one)
        if not peer.connections and error in _EXHAUSTED and self._open:
            del self._trying[peer]
            self._queue.appendleft((peer, addresses))
            self._at_once = self._open
        elif not peer.connections:
            self._fail(peer, _CAUSES.get(error, Cause.UNREACHABLE))

    def _hear(self, peer: _Peer, one: Any) -> None:
        if one not in peer.connections:  # it was closed by an event of the same round
            return
        try:
            failure = self._go_on(peer, one)
        except BlockingIOError:
            return
        except OSError:
            failure = Cause.NOT_GRPC if self._grpc else Cause.UNREACHABLE
        if failure is not None:
            self._close(peer, one)
            if not peer.connections:
                self._fail(peer, failure)

    def _go_on(self, peer: _Peer, one: socket.socket) -> Cause | None:
        """Do the next step of a connection; return the cause if it failed."""
        if self._selector.get_key(one).events == selectors.EVENT_WRITE:
            error = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            # A port without a listener can be assigned to the very socket that tries it, which connects to itself.
            if error or one.getsockname() == one.getpeername():
                return _CAUSES.get(error or errno.ECONNREFUSED, Cause.UNREACHABLE)
            if not self._grpc:
                self._answered(peer, one)
                return None
            one.send(_GREETING)
            self._selector.modify(one, selectors.EVENT_READ, peer)
            return None
        part = one.recv(1024)
        answer = peer.connections[one] = peer.connections[one] + part
        if len(answer) >= _FRAME_HEADER and answer[3] == _SETTINGS:
            self._answered(peer, one)
            return None
        return Cause.NOT_GRPC if len(answer) >= _FRAME_HEADER or not part else None

    def _answered(self, peer: _Peer, one: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it answered, and has disconnected
            peer.reached = one.getpeername()[:2]
        self._end_attempt(peer)
        self._silent.discard(peer)

    def _fail(self, peer: _Peer, cause: Cause) -> None:
        self._end_attempt(peer)
        peer.cause = cause
        self._pause(peer, min(_FIRST_PAUSE * 2 ** min(peer.attempts, 9) / 2, _LONGEST_PAUSE))

    def _end_attempt(self, peer: _Peer) -> None:
        peer.attempts += 1
        self._untried.discard(peer)
        self._trying.pop(peer, None)
        for one in list(peer.connections):
            self._close(peer, one)

    def _close(self, peer: _Peer, one: socket.socket) -> None:
        if one.fileno() in self._selector.get_map():
            self._selector.unregister(one)
        one.close()
        del peer.connections[one]
        self._open -= 1

    def _drop(self, peer: _Peer) -> None:
        peer.wanted = False
        self._silent.discard(peer)
        self._end_attempt(peer)
        if (name := self._naming.pop(peer, None)) is not None:
            look_ups.release(name)


def _silence(peer: _Peer) -> Cause:
    """Return the cause of an attempt without a result: a listener that does not answer the request."""
    for one in peer.connections:
        with contextlib.suppress(OSError):
            one.getpeername()
            return Cause.NOT_GRPC
    return Cause.TIMED_OUT
