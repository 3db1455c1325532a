"""Waiting until the tasks of a cluster listen.

TensorFlow connects lazily and blocks for ever, without a word, while one task is missing: be it a name that does not
resolve or a port that nobody listens on.  This module finds out which, and stops waiting in time.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import AddressError, NoSuchTaskError, TasksUnreachableError
from tfcluster_resolver.views.file import ViewFile

#: Probes at one time: a thread each, mostly waiting.
_PARALLEL: Final = 32
#: Seconds that one connection attempt may take; a live pod answers in milliseconds.
_ATTEMPT: Final = 3.0
#: Seconds between two rounds, first and at most: the start of a cluster is quick to notice, a long wait is cheap.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0


class Cause(Enum):
    """Why a task could not be reached, and where to look."""

    UNRESOLVED = "name does not resolve (is there a pod of that name, and does the cluster's DNS answer?)"
    NO_POD = "no pod (its Service's name resolves and its own does not: look at `kubectl get pods` and their events)"
    REFUSED = "connection refused (the pod is not ready: it is there and nothing listens; look at its log)"
    TIMED_OUT = "timed out (nothing answers: is the pod running, does a NetworkPolicy drop it?)"
    UNREACHABLE = "network error"
    SILENT = "accepts a connection and does not answer as a TensorFlow server (does its process hang?)"


@dataclass(frozen=True, slots=True)
class MissingTask:
    """A task that did not accept a connection: its job, index and address, and the cause at the last attempt."""

    job: str
    index: int
    address: str
    cause: Cause

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index} at {self.address}: {self.cause.value}"


def host_and_port(address: str) -> tuple[str, int]:
    """Take an address apart.

    Args:
        address: "host:port"; an IPv6 host stands in brackets.

    Returns:
        Host and port.

    Raises:
        AddressError: the text is no such address.
    """
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536):
        raise AddressError(f"{address!r} is not an address of the form host:port, as TensorFlow wants it")
    if "/" in host:
        raise AddressError(f"{address!r} has a scheme or a path; TensorFlow's addresses are host:port alone")
    return host.removeprefix("[").removesuffix("]"), int(port)


def wait_for_tasks(tasks: Iterable[tuple[str, int, str]], *, timeout: float) -> tuple[MissingTask, ...]:
    """Wait until every task accepts a TCP connection.

    Args:
        tasks: job, index and address of each.
        timeout: how long to wait for all of them together, in seconds; 0 looks once.

    Returns:
        The tasks that did not answer by then, in the order given; none if all are up.

    Raises:
        AddressError: an address is not "host:port".
    """
    deadline = time.monotonic() + timeout
    waiting = [(job, index, address, host_and_port(address)) for job, index, address in tasks]
    pause = _FIRST_PAUSE
    pool = ThreadPoolExecutor(max_workers=_PARALLEL, thread_name_prefix="tfcluster-probe")
    try:
        while True:
            probes = [pool.submit(_probe, target, _ATTEMPT) for *_, target in waiting]
            # NB: looking up a name cannot be interrupted, so a probe may outlive the deadline; it is not waited for.
            wait(probes, timeout=max(deadline - time.monotonic(), _ATTEMPT))
            causes = [probe.result() if probe.done() else Cause.TIMED_OUT for probe in probes]
            down = [(task, cause) for task, cause in zip(waiting, causes, strict=True) if cause is not None]
            if not down or time.monotonic() + pause > deadline:
                return tuple(MissingTask(job, index, address, cause) for (job, index, address, _), cause in down)
            waiting = [task for task, _ in down]
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _probe(target: tuple[str, int], timeout: float) -> Cause | None:
    try:
        with socket.create_connection(target, timeout=timeout):
            return None
    except (socket.gaierror, UnicodeError):
        return Cause.NO_POD if _service_resolves(target) else Cause.UNRESOLVED
    except ConnectionRefusedError:
        return Cause.REFUSED
    except TimeoutError:
        return Cause.TIMED_OUT
    except OSError:
        return Cause.UNREACHABLE


def _service_resolves(target: tuple[str, int]) -> bool:
    """Look up the headless Service of a task's name: it resolves while any pod of the cluster has an address."""
    _, _, service = target[0].partition(".")
    if "." not in service:
        return False
    try:
        return bool(socket.getaddrinfo(service, target[1], type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False


#: Seconds between two looks at the view: a task that was scaled away is not waited for any longer than that.
_LOOK: Final = 5.0
#: Seconds below which another look is not worth while.
_SHORT: Final = 0.1


def await_tasks(source: ViewFile, own: Task | None, *, jobs: Sequence[str], timeout: float) -> int:
    """Wait until every other task of the cluster, or of some jobs, accepts connections.

    Args:
        source: the mounted view; it is read again and again, so that a resize is followed.
        own: the own task, which is not waited for.
        jobs: the jobs to wait for; none means all that the view shows.
        timeout: how long to wait for all of them together, in seconds; 0 looks once.

    Returns:
        How many tasks there are, all of which listen.

    Raises:
        NoSuchTaskError: the view does not show one of the jobs.
        TasksUnreachableError: some tasks did not answer in time; each is listed with its cause.
        AddressError: an address is not "host:port".
        ViewError: the view is missing, unreadable, malformed or too new.
    """
    deadline = time.monotonic() + timeout
    answered: set[tuple[str, int, str]] = set()
    while True:
        membership = Membership(view=source.read().view, own=own)
        wanted = _wanted(membership, jobs)
        waiting = [task for task in wanted if task not in answered]
        left = max(deadline - time.monotonic(), 0.0)
        missing = wait_for_tasks(waiting, timeout=min(left, _LOOK))
        down = {(one.job, one.index, one.address) for one in missing}
        answered.update(task for task in waiting if task not in down)
        now = Membership(view=source.read().view, own=own)
        if not missing and all(task in answered for task in _wanted(now, jobs)):
            return len(wanted)
        if missing and time.monotonic() + _SHORT >= deadline:
            view = membership.view
            raise TasksUnreachableError(
                f"{len(missing)} of {len(wanted)} other tasks of {view.namespace}/{view.name} (epoch {view.epoch}) did "
                f"not accept a connection within {timeout:g} s:\n" + "\n".join(f"  {one}" for one in missing),
                missing,
            )


def _wanted(membership: Membership, jobs: Sequence[str]) -> list[tuple[str, int, str]]:
    own = membership.own
    others = [task for task in membership.tasks() if own is None or task[:2] != (own.job, own.index)]
    there = membership.jobs()
    for job in jobs:
        if job not in there:
            raise NoSuchTaskError(
                f"no job {job!r} in the view of {membership.view.namespace}/{membership.view.name}, which shows "
                f"{', '.join(sorted(there)) or 'none'}: it does not exist, or this task's device filters hide it"
            )
    return [task for task in others if not jobs or task[0] in jobs]


#: How HTTP/2, and so gRPC, begins (RFC 9113, 3.4), with the settings that must follow: none.
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME_HEADER: Final = 9
_SETTINGS: Final = 4
#: Seconds that a server on this machine gets to greet back.
_ANSWER: Final = 3.0


class PortState(Enum):
    """What a program that wants to listen on a port meets."""

    FREE = "free"
    TAKEN = "taken"
    FORBIDDEN = "forbidden"


def port_state(port: int) -> PortState:
    """Tell whether this process could listen on a port.

    Args:
        port: TCP port, 0 for any.

    Returns:
        What it would meet.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except PermissionError:
        return PortState.FORBIDDEN
    except OSError:
        return PortState.TAKEN
    return PortState.FREE


def speaks_grpc(host: str, port: int) -> bool:
    """Tell whether what listens on a port greets as a gRPC server does.

    Args:
        host: name or IP address.
        port: TCP port.

    Returns:
        Whether the first frame of its answer is HTTP/2's SETTINGS.
    """
    try:
        with socket.create_connection((host, port), timeout=_ANSWER) as connection:
            connection.sendall(_GREETING)
            header = b""
            while len(header) < _FRAME_HEADER:
                part = connection.recv(_FRAME_HEADER - len(header))
                if not part:
                    return False
                header += part
    except OSError:
        return False
    return header[3] == _SETTINGS
