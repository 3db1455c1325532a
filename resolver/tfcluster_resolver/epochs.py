"""Following the epochs of a view as they come.

It decides what a new epoch is, what was added and removed by it, and when the watch ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tfcluster_resolver.errors import ViewError
from tfcluster_resolver.membership import Membership
from tfcluster_resolver.task import Task
from tfcluster_resolver.watch import Notice

if TYPE_CHECKING:
    from tfcluster_resolver.resolver import TFClusterResolver

#: Seconds for which a view may be missing, unreachable or half-written before the watch gives up with its error.
GRACE: Final = 5.0


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """What a new epoch of the cluster changed for this task.

    Attributes:
        epoch: the new epoch.
        added: the tasks that came, by job and index; one whose address changed is in ``removed`` too.
        removed: the tasks that went.
        filters_changed: whether the device filters of any task changed.
        resolver: a snapshot of the resolver at this epoch.
    """

    epoch: int
    added: tuple[Task, ...]
    removed: tuple[Task, ...]
    filters_changed: bool
    resolver: TFClusterResolver


def difference(before: Membership, now: Membership) -> tuple[tuple[Task, ...], tuple[Task, ...], bool]:
    """Compare two epochs.

    Args:
        before: the cluster as it was.
        now: the cluster as it is.

    Returns:
        The tasks that came, those that went, and whether any device filter changed.
    """
    old, new = ({Task(*task) for task in one.tasks()} for one in (before, now))
    return tuple(sorted(new - old)), tuple(sorted(old - new)), before.device_filters() != now.device_filters()


def memberships(
    read: Callable[[], Membership], before: Membership, notice: Notice | None, timeout: float | None
) -> Iterator[tuple[Membership, Membership]]:
    """Give each new epoch with the one before it; of several quick ones at least the last.

    Args:
        read: gives the membership as it is now.
        before: the membership that is known.
        notice: tells that it may have changed; None if it never does.
        timeout: end after so many seconds without a new one, counted from each time that the next is asked for;
            None never ends.

    Yields:
        The membership before, and the new one.

    Raises:
        ViewError: the view could not be read for GRACE seconds, or at the end.
    """
    if notice is None:
        return
    with notice:
        while True:
            now = _await_change(read, before, notice, timeout)
            if now is None:
                return
            yield before, now
            before = now


def _await_change(
    read: Callable[[], Membership], before: Membership, notice: Notice, timeout: float | None
) -> Membership | None:
    asked = time.monotonic()
    failing_since: float | None = None
    while True:
        left = float("inf") if timeout is None else asked + timeout - time.monotonic()
        try:
            now = read()
        except ViewError:
            failing_since = time.monotonic() if failing_since is None else failing_since
            grace = failing_since + GRACE - time.monotonic()
            if min(left, grace) <= 0:
                raise
            left = min(left, grace)
        else:
            failing_since = None
            if _mark(now) != _mark(before):
                return now
            if left <= 0:
                return None
        notice.wait(left)


def _mark(membership: Membership) -> tuple[str, int]:
    return membership.view.uid, membership.view.epoch
