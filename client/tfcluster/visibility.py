"""Which task sees which and the device filter for it, and which tasks the network separates.

It computes what TensorFlow does with the device filters of a whole cluster.  With the isolation DeviceFilters,
NetworkPolicies block the connection between two tasks if neither sees the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfcluster.tasks import runs_of
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.device_filters import device_filter_matches

#: A task's filters; without any it sees everything.
_Texts = tuple[str, ...]
_Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sight:
    """Some tasks of one job, start <= index < stop, that a task sees or does not see."""

    job: str
    start: int
    stop: int
    #: The filters that show them, and the devices that these show where not all are, such as ("GPU:0",).
    by: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    #: Whether a NetworkPolicy keeps them apart, too.
    blocked: bool = False

    def __str__(self) -> str:
        last = "" if self.stop == self.start + 1 else f"-{self.stop - 1}"
        return f"/job:{self.job}/task:{self.start}{last}"

    def as_document(self) -> dict[str, Any]:
        told = {"by": self.by, "devices": self.devices, "blocked": self.blocked}
        tasks = {"job": self.job, "tasks": [self.start, self.stop]}
        return tasks | {key: value for key, value in told.items() if value}


@dataclass(frozen=True, slots=True)
class Row:
    """Neighbouring tasks of one job with the same device filters, and what these show and hide."""

    job: str
    start: int
    stop: int
    filters: _Texts
    sees: tuple[Sight, ...]
    hidden: tuple[Sight, ...]


def as_document(membership: Membership) -> dict[str, Any]:
    """Describe which task sees which, for programs."""
    view = membership.view
    return {
        "cluster": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
        "epoch": view.epoch,
        "isolation": view.isolation or None,
        "rows": [
            {
                "job": row.job,
                "tasks": [row.start, row.stop],
                "filters": row.filters,
                "sees": [one.as_document() for one in row.sees],
                "hidden": [one.as_document() for one in row.hidden],
            }
            for row in rows(membership)
        ],
    }


def as_text(membership: Membership) -> str:
    """Describe which task sees which, for people."""
    view = membership.view
    isolation = f", isolation {view.isolation}" if view.isolation else ""
    lines = [f"{view.namespace}/{view.name}, epoch {view.epoch}{isolation}: each task sees itself, and"]
    for row in rows(membership):
        tasks = Sight(row.job, row.start, row.stop)
        if not row.filters:
            lines.append(f"{tasks} sees every task: no device filters")
            continue
        lines.append(f"{tasks} sees")
        width = max((len(str(one)) for one in row.sees), default=0)
        for one in row.sees:
            only = f"  ({', '.join(one.devices)} alone)" if one.devices else ""
            lines.append(f"  {one!s:{width}}  by {', '.join(one.by)}{only}")
        lines += ["  no other task"] * (not row.sees)
        for blocked, why in ((False, "hidden by filter"), (True, "hidden by filter, blocked by policy")):
            if some := [str(one) for one in row.hidden if one.blocked == blocked]:
                lines.append(f"  not {', '.join(some)}" + (f"  ({why})" if view.isolation else ""))
    return "\n".join(lines)


def rows(membership: Membership) -> list[Row]:
    """Return a row for each run of tasks with equal filters, the jobs by name and the tasks by index."""
    declared = membership.device_filters()
    filters: dict[_Key, _Texts] = {
        task[:2]: declared.get(task.job, {}).get(task.index, ()) for task in membership.tasks()
    }
    devices = {task: _devices(membership, *task) for task in filters}
    # Many tasks share few lists of filters: compute the visible tasks once per list.
    shown = {texts: _sights(texts, devices) for texts in set(filters.values())}
    blocks = membership.view.isolation == "DeviceFilters"
    # The lists of filters that show a task.
    seen_by = {
        (job, index): frozenset(
            texts for texts, (sees, _) in shown.items() if any(s.job == job and s.start <= index < s.stop for s in sees)
        )
        for job, index in (filters if blocks else ())
    }
    found = []
    for job, start, stop in runs_of(sorted(filters), key=lambda task: (filters[task], seen_by.get(task))):
        sees, hidden = shown[filters[job, start]]
        if stop == start + 1:
            sees, hidden = (_without(sights, job, start) for sights in (sees, hidden))
        if blocks:
            hidden = _blocked(hidden, filters, seen_by[job, start])
        found.append(Row(job, start, stop, filters[job, start], sees, hidden))
    return found


def _blocked(
    hidden: tuple[Sight, ...], filters: Mapping[_Key, _Texts], seen_by: frozenset[_Texts]
) -> tuple[Sight, ...]:
    """Mark the hidden tasks that do not see back: connections to those are blocked completely."""
    tasks = [(one.job, index) for one in hidden for index in range(one.start, one.stop)]
    runs = runs_of(tasks, key=lambda task: filters.get(task) in seen_by)
    return tuple(Sight(job, start, stop, blocked=filters.get((job, start)) not in seen_by) for job, start, stop in runs)


def _devices(membership: Membership, job: str, index: int) -> tuple[str, ...]:
    """List a task's devices: TensorFlow gives each task a CPU."""
    counts = membership.device_counts(job, index)
    return ("CPU:0", *(f"{device}:{number}" for device in sorted(counts) for number in range(counts[device])))


def _sights(texts: _Texts, devices: dict[_Key, tuple[str, ...]]) -> tuple[tuple[Sight, ...], tuple[Sight, ...]]:
    if not texts:
        return tuple(Sight(*run) for run in runs_of(list(devices))), ()
    shown = {task: _shown(texts, task, names) for task, names in devices.items()}
    seen, hidden = [], []
    for job, start, stop in runs_of(list(devices), key=lambda task: shown[task]):
        by, some = shown[job, start]
        if by:
            seen.append(Sight(job, start, stop, by, some))
        else:
            hidden.append(Sight(job, start, stop))
    return tuple(seen), tuple(hidden)


def _without(sights: tuple[Sight, ...], job: str, index: int) -> tuple[Sight, ...]:
    left: list[Sight] = []
    for one in sights:
        if one.job == job and one.start <= index < one.stop:
            left += [replace(one, stop=index)] * (one.start < index)
            left += [replace(one, start=index + 1)] * (index + 1 < one.stop)
        else:
            left.append(one)
    return tuple(left)


def _shown(texts: tuple[str, ...], task: _Key, devices: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the filters that show a task, and the devices that they show where these are not all."""
    job, index = task
    by, some = set(), []
    for device in devices:
        name = f"/job:{job}/replica:0/task:{index}/device:{device}"
        matching = {text for text in texts if device_filter_matches(text, name)}
        by |= matching
        some += [device] * bool(matching)
    return tuple(text for text in texts if text in by), tuple(some) if len(some) < len(devices) else ()
