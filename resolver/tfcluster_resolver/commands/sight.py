"""Which task sees which, by which device filter; and which tasks the network keeps apart.

It decides what TensorFlow will do with the device filters of a view, and what the view cannot tell.  Under the
isolation DeviceFilters, NetworkPolicies block the way between two tasks if neither sees the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.device_filters import device_filter_matches

#: The isolation under which NetworkPolicies follow the device filters.
DEVICE_FILTERS: Final = "DeviceFilters"

#: A task's filters; None where the view does not hold them.
_Texts = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Sight:
    """Some tasks of one job that a task sees, or that it does not.

    Attributes:
        job: their job.
        start: the first of them.
        stop: the one after the last.
        by: the filters that show them, in the order in which they are declared.
        devices: the devices that are shown where not all are, such as ("GPU:0",).
        blocked: whether a NetworkPolicy keeps them apart, too; only of tasks that it does not see.
    """

    job: str
    start: int
    stop: int
    by: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Neighbouring tasks of one job with the same device filters, and what they see besides themselves.

    Under the isolation DeviceFilters the same filters show them, too.

    Attributes:
        job: their job.
        start: the first of them.
        stop: the one after the last.
        filters: their device filters, of which none means that they see everything; None where the view does not
            hold them.
        sees: what their filters show.
        hidden: what their filters hide; nothing where the filters are not known.
    """

    job: str
    start: int
    stop: int
    filters: tuple[str, ...] | None
    sees: tuple[Sight, ...]
    hidden: tuple[Sight, ...]


def rows(membership: Membership) -> list[Row]:
    """Work out who sees whom.

    Returns:
        A row for each run of tasks with equal filters, the jobs by name and the tasks by index.
    """
    filters = _filters(membership)
    devices = {(job, index): _devices(membership, job, index) for job, index, _ in membership.tasks()}
    # Few lists of filters serve many tasks: what each shows is worked out once.
    shown = {texts: _sights(texts, devices) for texts in set(filters.values())}
    blocks = membership.view.isolation == DEVICE_FILTERS
    seen_by = {task: _seen_by(task, shown) if blocks else frozenset[_Texts]() for task in filters}
    found = []
    for job, start, stop in _runs(sorted(filters), key=lambda task: (filters[task], seen_by[task])):
        sees, hidden = shown[filters[job, start]]
        if stop == start + 1:
            sees, hidden = (_without(sights, job, start) for sights in (sees, hidden))
        if blocks:
            hidden = _blocked(hidden, filters, seen_by[job, start])
        found.append(Row(job, start, stop, filters[job, start], sees, hidden))
    return found


def _seen_by(
    task: tuple[str, int], shown: Mapping[_Texts, tuple[tuple[Sight, ...], tuple[Sight, ...]]]
) -> frozenset[_Texts]:
    """Give the lists of filters that show a task."""
    job, index = task
    return frozenset(
        texts for texts, (sees, _) in shown.items() if any(s.job == job and s.start <= index < s.stop for s in sees)
    )


def _blocked(
    hidden: tuple[Sight, ...], filters: Mapping[tuple[str, int], _Texts], seen_by: frozenset[_Texts]
) -> tuple[Sight, ...]:
    """Tell of hidden tasks which do not see back: with those there is no connection at all."""
    tasks = [(one.job, index) for one in hidden for index in range(one.start, one.stop)]
    runs = _runs(tasks, key=lambda task: filters.get(task) in seen_by)
    return tuple(Sight(job, start, stop, blocked=filters.get((job, start)) not in seen_by) for job, start, stop in runs)


def is_complete(membership: Membership) -> bool:
    """Tell whether this task's view certainly shows the whole cluster: its own task is in it, without filters."""
    own = membership.own
    return own is not None and _filters(membership).get((own.job, own.index)) == ()


def _filters(membership: Membership) -> dict[tuple[str, int], tuple[str, ...] | None]:
    """Give each task's filters; None where the view does not hold them."""
    declared = membership.device_filters()
    tasks = {(job, index): declared.get(job, {}).get(index, ()) for job, index, _ in membership.tasks()}
    filters: dict[tuple[str, int], tuple[str, ...] | None] = dict(tasks)
    own = membership.own
    if own is not None and own.index not in _shown_indices(membership, own.job):
        # A view holds the filters of the tasks that it shows, and this one does not show its own task.
        filters[own.job, own.index] = None
    return filters


def _shown_indices(membership: Membership, job: str) -> Iterable[int]:
    tasks = membership.view.jobs.get(job, ())
    return range(len(tasks)) if isinstance(tasks, Sequence) else tasks


def _devices(membership: Membership, job: str, index: int) -> tuple[str, ...]:
    """List a task's devices: TensorFlow gives each task a CPU."""
    counts = membership.device_counts(job, index)
    return ("CPU:0", *(f"{device}:{number}" for device in sorted(counts) for number in range(counts[device])))


def _sights(
    texts: tuple[str, ...] | None, devices: dict[tuple[str, int], tuple[str, ...]]
) -> tuple[tuple[Sight, ...], tuple[Sight, ...]]:
    """Give what filters show and what they hide."""
    if not texts:
        return tuple(Sight(job, start, stop) for job, start, stop in _runs(list(devices))), ()
    shown = {task: _shown(texts, task, names) for task, names in devices.items()}
    seen, hidden = [], []
    for job, start, stop in _runs(list(devices), key=lambda task: shown[task]):
        by, some = shown[job, start]
        if by:
            seen.append(Sight(job, start, stop, by, some))
        else:
            hidden.append(Sight(job, start, stop))
    return tuple(seen), tuple(hidden)


def _without(sights: tuple[Sight, ...], job: str, index: int) -> tuple[Sight, ...]:
    """Leave out one task."""
    left: list[Sight] = []
    for one in sights:
        if one.job == job and one.start <= index < one.stop:
            left += [replace(one, stop=index)] * (one.start < index)
            left += [replace(one, start=index + 1)] * (index + 1 < one.stop)
        else:
            left.append(one)
    return tuple(left)


def _shown(
    texts: tuple[str, ...], task: tuple[str, int], devices: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the filters that show a task, and the devices that they show where these are not all."""
    job, index = task
    by, some = set(), []
    for device in devices:
        name = f"/job:{job}/replica:0/task:{index}/device:{device}"
        matching = {text for text in texts if device_filter_matches(text, name)}
        by |= matching
        some += [device] * bool(matching)
    return tuple(text for text in texts if text in by), tuple(some) if len(some) < len(devices) else ()


def _runs(tasks: Sequence[tuple[str, int]], key: Any = lambda _: None) -> list[tuple[str, int, int]]:
    """Group neighbouring tasks of one job for which the key is the same: job, start and stop of each group."""
    runs: list[tuple[str, int, int]] = []
    last: Any = None
    for task in tasks:
        job, index = task
        now = key(task)
        if runs and runs[-1][0] == job and runs[-1][2] == index and now == last:
            runs[-1] = (job, runs[-1][1], index + 1)
        else:
            runs.append((job, index, index + 1))
        last = now
    return runs
