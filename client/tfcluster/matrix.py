"""The visibility of tasks as a grid: a row for each group of tasks that see, a column for each group that is seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from tfcluster.tasks import spell
from tfcluster.visibility import Row, Sight, rows
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.life.views import whole_view
from tfcluster_resolver.cluster import Membership

#: A cell: the row's tasks see all of the column's, or some of their devices or tasks, or none, or the network also
#: blocks them, or both are the same task.
Sees = Literal["sees", "partly", "hidden", "blocked", "self"]


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring tasks of one job with the same visibility in both directions."""

    job: str
    start: int
    stop: int

    def __str__(self) -> str:
        return spell(self.job, self.start, self.stop - 1)


@dataclass(frozen=True, slots=True)
class Grid:
    """The visibility of tasks."""

    groups: tuple[Group, ...]
    cells: tuple[tuple[Sees, ...], ...]


def membership_of(cluster: TFCluster) -> Membership:
    return Membership(view=whole_view(cluster), own=None)


def grid_of(membership: Membership, *, most: int) -> Grid | None:
    found = rows(membership)
    tasks = [Group(job, index, index + 1) for job, index, _ in membership.tasks()]
    if len(tasks) <= most:
        return _grid(tasks, found)
    groups = list(_groups(found))
    return _grid(groups, found) if len(groups) <= most else None


def _groups(found: Sequence[Row]) -> Iterator[Group]:
    """Split each job wherever a row distinguishes its tasks."""
    cuts: dict[str, set[int]] = {}
    for row in found:
        cuts.setdefault(row.job, set()).update((row.start, row.stop))
        for one in (*row.sees, *row.hidden):
            cuts.setdefault(one.job, set()).update((one.start, one.stop))
    for job in sorted({row.job for row in found}):
        edges = sorted(cuts[job])
        yield from (Group(job, start, stop) for start, stop in pairwise(edges))


def _grid(groups: Sequence[Group], found: Sequence[Row]) -> Grid:
    row_of = {group: next(row for row in found if _holds(row, group)) for group in groups}
    cells = tuple(tuple(_cell(row_of[group], group, column) for column in groups) for group in groups)
    return Grid(tuple(groups), cells)


def _holds(outer: Row | Sight, group: Group) -> bool:
    return outer.job == group.job and outer.start <= group.start and group.stop <= outer.stop


def _cell(row: Row, group: Group, column: Group) -> Sees:
    if group == column and group.stop == group.start + 1:
        return "self"
    for sight in row.sees:
        if _holds(sight, column):
            return "partly" if sight.devices else "sees"
    return "blocked" if any(one.blocked for one in row.hidden if _holds(one, column)) else "hidden"


#: The sign for each cell, one without Unicode, and its meaning.
SIGNS: Final[Mapping[Sees, tuple[str, str, str]]] = {
    "sees": ("●", "x", "sees"),
    "partly": ("◐", "/", "sees in part"),
    "hidden": ("·", ".", "hidden by device filters"),
    "blocked": ("✕", "#", "hidden, and blocked by network policy"),
    "self": ("—", "-", "itself"),
}


def grid_lines(grid: Grid, *, fancy: bool) -> list[str]:
    at = 0 if fancy else 1
    names = [str(group) for group in grid.groups]
    width = max(map(len, names), default=0)
    # A column's number is above it; its name is that of the row with the same number.
    digits = len(str(len(names)))
    numbers = " ".join(f"{number:>{digits}}" for number in range(1, len(names) + 1))
    lines = [f"{'':{width + digits + 2}}{numbers}"]
    for number, (name, cells) in enumerate(zip(names, grid.cells, strict=True), start=1):
        signs = " ".join(f"{SIGNS[cell][at]:>{digits}}" for cell in cells)
        lines.append(f"{name:{width}} {number:>{digits}} {signs}".rstrip())
    used = {cell for cells in grid.cells for cell in cells}
    return [*lines, ", ".join(f"{SIGNS[one][at]} {SIGNS[one][2]}" for one in SIGNS if one in used)]
