"""What ``matrix`` prints: which task sees which, and by which device filter; and whom the network keeps apart.

It tells what TensorFlow will do with the filters of this task's view, and where the view does not hold them.  Under the
isolation DeviceFilters, NetworkPolicies block the way between two tasks if neither sees the other.  It needs no
TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.device_names import device_filter_matches

#: The isolation under which NetworkPolicies follow the device filters.
DEVICE_FILTERS: Final = "DeviceFilters"

#: A task's filters; None where the view does not hold them.
_Texts = tuple[str, ...] | None

_INCOMPLETE: Final = (
    "Tasks that this one does not see, and their device filters, may be missing here: ask a task without device "
    "filters, such as the chief."
)


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

    Args:
        membership: the cluster as the own task sees it.

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


def as_json(membership: Membership, *, whole: bool = False) -> str:
    """Describe who sees whom, for programs.

    Args:
        membership: the cluster.
        whole: whether the view is known to show the whole cluster, whatever the own task's filters are.

    Returns:
        A JSON object: ``cluster``, ``epoch``, ``isolation`` (whose connections the network lets through, or null),
        ``complete`` (whether the view certainly shows the whole cluster) and ``rows``, each with ``job``, ``tasks``
        ([start, stop]), ``filters`` (null: not in the view), ``sees`` and ``hidden`` (each with ``job``, ``tasks``, and
        ``by``, ``devices`` and ``blocked`` where they say something).
    """
    view = membership.view
    document = {
        "cluster": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
        "epoch": view.epoch,
        "isolation": view.isolation or None,
        "complete": whole or is_complete(membership),
        "rows": [
            {
                "job": row.job,
                "tasks": [row.start, row.stop],
                "filters": None if row.filters is None else list(row.filters),
                "sees": [_sight_as_json(one) for one in row.sees],
                "hidden": [_sight_as_json(one) for one in row.hidden],
            }
            for row in rows(membership)
        ],
    }
    return json.dumps(document, indent=2)


def as_text(membership: Membership, *, whole: bool = False) -> str:
    """Describe who sees whom, for people.

    Args:
        membership: the cluster.
        whole: whether the view is known to show the whole cluster, whatever the own task's filters are.

    Returns:
        Lines of text.
    """
    view = membership.view
    isolation = f", isolation {view.isolation}" if view.isolation else ""
    lines = [f"{view.namespace}/{view.name}, epoch {view.epoch}{isolation}: each task sees itself, and"]
    for row in rows(membership):
        tasks = _spell(row.job, row.start, row.stop)
        if row.filters == ():
            lines.append(f"{tasks} sees every task: no device filters")
            continue
        known = row.filters is not None
        lines.append(f"{tasks} sees" if known else f"{tasks} sees, by device filters that its view does not hold")
        width = max((len(_spell(one.job, one.start, one.stop)) for one in row.sees), default=0)
        for one in row.sees:
            by = f"  by {', '.join(one.by)}" if one.by else ""
            only = f"  ({', '.join(one.devices)} alone)" if one.devices else ""
            lines.append(f"  {_spell(one.job, one.start, one.stop):{width}}{by}{only}".rstrip())
        lines += ["  no other task"] * (not row.sees)
        for blocked, why in ((False, "hidden by filter"), (True, "hidden by filter, blocked by policy")):
            if some := [_spell(one.job, one.start, one.stop) for one in row.hidden if one.blocked == blocked]:
                lines.append(f"  not {', '.join(some)}" + (f"  ({why})" if view.isolation else ""))
    return "\n".join([*lines, *([] if whole or is_complete(membership) else [_INCOMPLETE])])


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


def _sight_as_json(sight: Sight) -> dict[str, Any]:
    told: dict[str, Any] = {"job": sight.job, "tasks": [sight.start, sight.stop]}
    if sight.by:
        told["by"] = list(sight.by)
    if sight.devices:
        told["devices"] = list(sight.devices)
    if sight.blocked:
        told["blocked"] = True
    return told


def _spell(job: str, start: int, stop: int) -> str:
    return f"/job:{job}/task:{start}" if stop == start + 1 else f"/job:{job}/task:{start}-{stop - 1}"
