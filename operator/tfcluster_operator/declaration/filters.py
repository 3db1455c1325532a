"""Device filters: which tasks a filter lets a task see.

The grammar is the canonical form of TensorFlow's (DeviceNameUtils::ParseFullName), with each part at most once and in
this order: ``/job:J/replica:0/task:N/device:T:N``.  TensorFlow matches field by field; a task is visible when one of
its devices can match, so the device part never hides a task from a view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_CANONICAL: Final = re.compile(
    r"(?=/)(?:/job:(?P<job>[a-z][a-z0-9_]*))?(?:/replica:0)?(?:/task:(?P<task>0|[1-9][0-9]*))?"
    r"(?:/device:[A-Za-z][A-Za-z0-9_]*(?::(?:0|[1-9][0-9]*))?|/(?:cpu|gpu|CPU|GPU):(?:0|[1-9][0-9]*))?"
)


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """The parts of a filter that decide which tasks it shows; None matches every job or every index."""

    job: str | None
    task: int | None


@lru_cache(maxsize=1024)
def parse(text: str) -> DeviceFilter | None:
    """Parse one device filter."""
    match = _CANONICAL.fullmatch(text)
    if match is None:
        return None
    return DeviceFilter(job=match["job"], task=None if match["task"] is None else int(match["task"]))


@dataclass(frozen=True, slots=True)
class Visible:
    """The tasks of one job that some filters show: all of them, or these indices."""

    everything: bool
    indices: frozenset[int]

    def within(self, count: int) -> tuple[int, ...]:
        """Return the visible indices below ``count``, ascending."""
        return tuple(range(count)) if self.everything else tuple(sorted(i for i in self.indices if i < count))

    def count(self, below: int) -> int:
        """Return how many indices below this one are visible."""
        return below if self.everything else sum(index < below for index in self.indices)


@lru_cache(maxsize=1024)
def visible(texts: tuple[str, ...], job: str) -> Visible:
    """Return which other tasks of a job a task with these device filters sees."""
    if not texts:
        return Visible(everything=True, indices=frozenset())
    matching = [f for f in map(parse, texts) if f is not None and f.job in (None, job)]
    return Visible(
        everything=any(f.task is None for f in matching),
        indices=frozenset(f.task for f in matching if f.task is not None),
    )
