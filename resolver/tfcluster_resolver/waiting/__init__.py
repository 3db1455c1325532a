"""Waiting until the tasks of a cluster answer: one wait, which follows the view.

It decides who is waited for: the tasks that the view has at each moment, so that one that is scaled away meanwhile is
waited for no longer, and one that comes is.  Connecting, the command ``wait`` and a program's ``wait()`` all wait here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from tfcluster_resolver import _arguments
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import (
    ArgumentTypeError,
    NoSuchTaskError,
    SnapshotOutdatedError,
    TasksUnreachableError,
    ViewError,
)
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.views.watch import GRACE
from tfcluster_resolver.waiting.probes import Probes
from tfcluster_resolver.waiting.reachability import MissingTask

#: Seconds between two looks at the view.
_LOOK: Final = 0.5
#: Seconds that a task gets which came at the very end.
_MOMENT: Final = 0.1
#: Tasks that a message lists; the errors hold all.
_LISTED: Final = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """Who is waited for at one moment.

    Attributes:
        tasks: job, index and address of each.
        cluster: what messages call the cluster.
        gone: those of a snapshot's tasks that the cluster has no more.
    """

    tasks: Sequence[Task]
    cluster: str
    gone: Sequence[Task] = ()


def wait(resolver: TFClusterResolver | None = None, *, jobs: Iterable[str] = (), timeout: float = 300.0) -> int:
    """Wait until every other task accepts connections.

    A resize is followed: a task that is scaled away meanwhile is waited for no longer, and one that is added is.  It
    needs no TensorFlow, and connects to nothing for longer than a moment.

    Args:
        resolver: the cluster; by default that of this pod.  A snapshot's tasks never change: the wait for one ends
            when the cluster has scaled a task of it away.
        jobs: the jobs to wait for; none means all that this task sees.
        timeout: how long to wait for all of them together, in seconds; 0 looks once, for about a second.

    Returns:
        How many tasks there are, all of which answered.

    Raises:
        TasksUnreachableError: some tasks did not answer in time; each is listed with its cause.
        SnapshotOutdatedError: a task of the snapshot is gone, and some have not answered.
        NoSuchTaskError: this task sees no such job.
        AddressError: an address is not "host:port".
        ViewError: the view is missing, unreadable, malformed or too new, for 5 seconds once the wait has begun.
        ArgumentError: an argument is of another type, or the time-out is below 0 or no number.
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
        return wanted(resolver.membership(), own, jobs=names, gone=gone_from(resolver))

    return len(wait_for(look, timeout=seconds).tasks)


def wanted(
    membership: Membership,
    own: tuple[str | None, int | None] | None = None,
    *,
    jobs: Sequence[str] = (),
    gone: Sequence[Task] = (),
) -> Wanted:
    """Choose whom to wait for.

    Args:
        membership: the cluster at this moment.
        own: job and index of the task that is not waited for; by default the one that this process is.
        jobs: the jobs to wait for; none means all.
        gone: the tasks that the cluster has no more.

    Returns:
        The tasks.

    Raises:
        NoSuchTaskError: the view does not show one of the jobs.
    """
    view, there = membership.view, membership.jobs()
    if own is None and membership.own is not None:
        own = (membership.own.job, membership.own.index)
    cluster = f"{view.namespace}/{view.name}" if view.name else "the given ClusterSpec"
    for job in jobs:
        if job not in there:
            raise NoSuchTaskError(
                f"no job {job!r} in the view of {cluster}, which shows {', '.join(sorted(there)) or 'none'}: "
                "it does not exist, or this task's device filters hide it"
            )
    tasks = [task for task in membership.tasks() if task[:2] != own and (not jobs or task[0] in jobs)]
    return Wanted(tasks, f"{cluster} (epoch {view.epoch})" if view.name else cluster, gone)


def gone_from(resolver: TFClusterResolver) -> Sequence[Task]:
    """List the tasks of a snapshot that its cluster has no more, as far as that can be told; none where it is live."""
    if not resolver._is_snapshot():  # noqa: SLF001 - of this package
        return ()  # NB: its watch would tell of an epoch that comes between the two looks that it begins with
    try:
        change = next(iter(resolver.watch(timeout=0)), None)
    except ViewError:  # a snapshot does not depend on it
        return ()
    return change.removed if change is not None else ()


def wait_for(look: Callable[[], Wanted], *, timeout: float, grpc: bool = False) -> Wanted:
    """Wait until every task answers, whoever that is at each moment.

    Args:
        look: tells who is waited for now; it is asked again and again.
        timeout: how long to wait for all of them together, in seconds; 0 looks once, for about a second.
        grpc: whether a task must answer as a gRPC server does; else it is enough that it accepts a connection.

    Returns:
        Those that were waited for, all of which have answered.

    Raises:
        TasksUnreachableError: some tasks did not answer in time; each is listed with its cause.
        SnapshotOutdatedError: a task is gone for good, and some have not answered.
        AddressError: an address is not "host:port".
        ViewError: ``look`` raised it at first, or for 5 seconds.
    """
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
                raise _outdated(now, missing)
            if now.tasks == before.tasks and not missing:
                return now
            if time.monotonic() >= deadline:
                if now.tasks != before.tasks:
                    probes.want(now.tasks)
                    probes.run(_MOMENT)
                    missing = probes.missing()
                if not missing:
                    return now
                raise _unreachable(now, missing, timeout)


def wait_for_tasks(
    tasks: Iterable[tuple[str, int, str]], *, timeout: float, grpc: bool = False
) -> tuple[MissingTask, ...]:
    """Wait until every one of some tasks answers.

    Args:
        tasks: job, index and address of each.
        timeout: how long to wait for all of them together, in seconds; 0 looks once, for about a second.
        grpc: whether a task must answer as a gRPC server does; else it is enough that it accepts a connection.

    Returns:
        The tasks that did not answer by then, in the order given; none if all are up.

    Raises:
        AddressError: an address is not "host:port".
    """
    with closing(Probes(grpc=grpc)) as probes:
        probes.want(tuple(tasks))
        if timeout > 0:
            probes.run(timeout)
        else:
            probes.look_once()
        return probes.missing()


def _unreachable(now: Wanted, missing: tuple[MissingTask, ...], timeout: float) -> TasksUnreachableError:
    return TasksUnreachableError(
        f"{len(missing)} of {len(now.tasks)} other tasks of {now.cluster} did not answer within {timeout:g} s:\n"
        + _listed(missing),
        missing,
    )


def _outdated(now: Wanted, missing: tuple[MissingTask, ...]) -> SnapshotOutdatedError:
    return SnapshotOutdatedError(
        f"the snapshot of {now.cluster} is outdated: the cluster has changed, and these of its tasks do not answer:\n"
        f"{_listed(missing)}\nThe cluster no longer has, at the snapshot's address:\n{_listed(now.gone)}\n"
        "Take a new snapshot() and try again; give the resolver itself, and the wait follows such a change"
    )


def _listed(tasks: Sequence[object]) -> str:
    more = len(tasks) - _LISTED
    return "\n".join([f"  {one}" for one in tasks[:_LISTED]] + ([f"  and {more} more"] if more > 0 else []))
