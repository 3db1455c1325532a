"""Waiting until the tasks of a cluster answer, and the port of this process's own task.

The tasks that are waited for are those that the view has at each moment, so a resize is followed.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Literal

from tfcluster_resolver import _arguments
from tfcluster_resolver.cluster import Task
from tfcluster_resolver.errors import (
    ArgumentTypeError,
    MissingTask,
    NoSuchTaskError,
    SnapshotOutdatedError,
    TasksUnreachableError,
    ViewError,
)
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.views.watch import GRACE, FrozenView
from tfcluster_resolver.waiting.probes import Probes

#: Seconds between two checks of the view.
_LOOK: Final = 0.5
#: Seconds for a task that was added at the very end.
_MOMENT: Final = 0.1
#: Tasks that a message lists; the errors hold all.
_LISTED: Final = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """The tasks to wait for now, their cluster, and those of a snapshot that the cluster no longer has."""

    tasks: Sequence[Task]
    cluster: str
    gone: Sequence[Task] = ()


def wait(resolver: TFClusterResolver | None = None, *, jobs: Iterable[str] = (), timeout: float = 300.0) -> int:
    """Wait until every other task accepts connections, and return how many there are.

    A resize is followed: a task that is scaled away in the meantime is no longer waited for, and one that is added is.
    It does not need TensorFlow, and its connections last only a moment.

    Args:
        resolver: the cluster; by default that of this pod.  A snapshot's tasks never change: the wait for one ends
            when the cluster has scaled a task of it away.
        jobs: the jobs to wait for; none means all that this task sees.
        timeout: how long to wait for all of them together, in seconds; 0 looks once, for about a second.

    Raises:
        TasksUnreachableError: some tasks did not answer in time; each is listed with its cause.
        SnapshotOutdatedError: a task of the snapshot was scaled away, and some have not answered.
        NoSuchTaskError: this task does not see the job.
        AddressError: an address is not "host:port".
        ViewError: the view is missing, unreadable, malformed or too new, for 5 seconds once the wait has begun.
        ArgumentError: an argument is of another type, or the time-out is below 0 or not a number.
    """
    if isinstance(jobs, str) or not isinstance(jobs, Iterable):
        raise ArgumentTypeError(f"jobs must be a list of the names of jobs, not {type(jobs).__name__}")
    names = tuple(_arguments.text(job, "a job in jobs") for job in jobs)
    seconds = _arguments.seconds(timeout, "timeout")
    if resolver is None:
        resolver = TFClusterResolver()
    elif not isinstance(resolver, TFClusterResolver):
        raise ArgumentTypeError(f"wait() takes a TFClusterResolver, not {type(resolver).__name__}")
    own = (resolver.task_type, resolver.task_id)

    def look() -> Wanted:
        membership = resolver.membership()
        view, there = membership.view, membership.jobs()
        cluster = f"{view.namespace}/{view.name}" if view.name else "the given ClusterSpec"
        for job in names:
            if job not in there:
                raise NoSuchTaskError(
                    f"no job {job!r} in the view of {cluster}, which shows {', '.join(sorted(there)) or 'none'}: "
                    "it does not exist, or this task's device filters hide it"
                )
        tasks = [task for task in membership.tasks() if task[:2] != own and (not names or task.job in names)]
        return Wanted(tasks, f"{cluster} (epoch {view.epoch})" if view.name else cluster, gone_from(resolver))

    return len(wait_for(look, timeout=seconds).tasks)


def gone_from(resolver: TFClusterResolver) -> Sequence[Task]:
    """List the tasks of a snapshot that its cluster no longer has; empty if the resolver is live."""
    if not isinstance(resolver._source, FrozenView):  # noqa: SLF001 - of this package
        return ()  # its watch would report an epoch between its first two reads
    try:
        change = next(iter(resolver.watch(timeout=0)), None)
    except ViewError:  # a snapshot does not depend on it
        return ()
    return change.removed if change is not None else ()


def wait_for(look: Callable[[], Wanted], *, timeout: float, grpc: bool = False) -> Wanted:
    """Wait until every task that ``look`` returns at that moment answers; see :func:`wait_for_tasks`."""
    deadline = time.monotonic() + timeout
    now = look()
    seen = time.monotonic()
    with closing(Probes(grpc=grpc)) as probes:
        while True:
            probes.want(now.tasks)
            if timeout:
                probes.run(min(deadline - time.monotonic(), _LOOK))
            else:
                probes.look_once()
            missing = probes.missing()
            try:
                now, before = look(), now
                seen = time.monotonic()
            except ViewError:
                if time.monotonic() - seen > GRACE or not missing:
                    raise
                before = now
            if missing and now.gone:
                raise SnapshotOutdatedError(
                    f"the snapshot of {now.cluster} is outdated: the cluster has changed, and these of its tasks do "
                    f"not answer:\n{_listed(missing)}\nThe cluster no longer has, at the snapshot's address:\n"
                    f"{_listed(now.gone)}\nTake a new snapshot() and try again; give the resolver itself, and the wait "
                    "follows such a change"
                )
            if now.tasks == before.tasks and not missing:
                return now
            if time.monotonic() >= deadline:
                if now.tasks != before.tasks:
                    probes.want(now.tasks)
                    probes.run(_MOMENT)
                    missing = probes.missing()
                if not missing:
                    return now
                raise TasksUnreachableError(
                    f"{len(missing)} of {len(now.tasks)} other tasks of {now.cluster} did not answer within "
                    f"{timeout:g} s:\n{_listed(missing)}",
                    missing,
                )


def wait_for_tasks(
    tasks: Iterable[tuple[str, int, str]], *, timeout: float, grpc: bool = False
) -> tuple[MissingTask, ...]:
    """Wait until every one of some tasks answers, and return those that did not; 0 looks once, for about a second."""
    with closing(Probes(grpc=grpc)) as probes:
        probes.want(tuple(tasks))
        if timeout > 0:
            probes.run(timeout)
        else:
            probes.look_once()
        return probes.missing()


def _listed(tasks: Sequence[object]) -> str:
    more = len(tasks) - _LISTED
    return "\n".join([f"  {one}" for one in tasks[:_LISTED]] + ([f"  and {more} more"] if more > 0 else []))


def port_state(port: int) -> Literal["free", "taken", "forbidden"]:
    """Check whether this process could listen on a port, of every address of this machine as TensorFlow does."""
    # If the port of its own task is taken, TensorFlow fails late and leaves a process that can no longer connect.
    try:
        with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
            if probe.family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except PermissionError:
        return "forbidden"
    except OSError:
        return "taken"
    return "free"


def speaks_grpc(port: int) -> bool:
    """Return whether the listener on a port of this machine greets like a gRPC server."""
    return any(not wait_for_tasks([("", 0, f"{host}:{port}")], timeout=0, grpc=True) for host in ("127.0.0.1", "[::1]"))
