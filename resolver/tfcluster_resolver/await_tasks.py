"""Waiting for the other tasks before a program starts, also while the cluster is resized."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tfcluster_resolver.errors import NoSuchTaskError, TasksUnreachableError
from tfcluster_resolver.membership import Membership
from tfcluster_resolver.reachability import wait_for_tasks
from tfcluster_resolver.task import OwnTask
from tfcluster_resolver.view_file import ViewFile

#: Seconds between two looks at the view: a task that was scaled away is not waited for any longer than that.
_LOOK: Final = 5.0
#: Seconds below which another look is not worth while.
_SHORT: Final = 0.1


def await_tasks(source: ViewFile, own: OwnTask | None, *, jobs: Sequence[str], timeout: float) -> int:
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
