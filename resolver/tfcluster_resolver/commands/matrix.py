"""``matrix``: which task sees which, and by which device filter, as far as a task's view has it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.commands import command
from tfcluster_resolver.device_filters import device_filter_matches

_Key = tuple[str, int]

_INCOMPLETE: Final = (
    "Tasks that this one does not see, and their device filters, can be missing here: ask a task without device "
    "filters, such as the chief."
)


def lines(membership: Membership) -> Iterator[str]:
    """Describe which task sees which; neighbouring tasks of a job that see the same share a description."""
    view, own = membership.view, membership.own
    tasks = [(job, index) for job, index, _ in membership.tasks()]
    declared = membership.device_filters()
    shown = {(job, index) for job, index, _ in Membership(view, None).tasks()}
    # A view has the filters of the tasks that it shows, and might not show its own task.
    filters = {task: declared.get(task[0], {}).get(task[1], ()) for task in tasks if task in shown}
    yield f"{view.namespace}/{view.name}, epoch {view.epoch}: each task sees itself, and"
    for group in _runs(filters, filters.__getitem__):
        texts = filters[group[0]]
        if not texts:
            yield f"{_spell(group)} sees every task: no device filters"
            continue
        yield f"{_spell(group)} sees"
        others = [task for task in tasks if len(group) > 1 or task != group[0]]
        by = {task: _shown_by(membership, texts, task) for task in others}
        seen = [(_spell(run), by[run[0]]) for run in _runs(others, by.__getitem__) if by[run[0]]]
        width = max((len(words) for words, _ in seen), default=0)
        yield from (f"  {words:{width}}  by {', '.join(some)}" for words, some in seen)
        if not seen:
            yield "  no other task"
        if hidden := [_spell(run) for run in _runs([task for task in others if not by[task]], lambda _: None)]:
            yield f"  not {', '.join(hidden)}"
    if own is None or filters.get(own[:2]) != ():
        yield _INCOMPLETE


def _shown_by(membership: Membership, texts: tuple[str, ...], task: _Key) -> tuple[str, ...]:
    """Return the filters that show any device of a task: TensorFlow gives each task a CPU."""
    job, index = task
    counts = membership.device_counts(job, index)
    devices = ["CPU:0", *(f"{device}:{number}" for device, count in counts.items() for number in range(count))]
    names = [f"/job:{job}/replica:0/task:{index}/device:{device}" for device in devices]
    return tuple(text for text in texts if any(device_filter_matches(text, name) for name in names))


def _runs(tasks: Iterable[_Key], key: Callable[[_Key], Any]) -> list[list[_Key]]:
    """Group neighbouring tasks of one job for which the key is the same."""
    ordered = sorted(tasks)
    places = {task: task[1] - number for number, task in enumerate(ordered)}
    return [list(run) for _, run in groupby(ordered, lambda task: (task[0], places[task], key(task)))]


def _spell(run: list[_Key]) -> str:
    (job, start), (_, last) = run[0], run[-1]
    return f"/job:{job}/task:{start}" if start == last else f"/job:{job}/task:{start}-{last}"


def _run(options: argparse.Namespace) -> int:
    membership, _ = command.read(options.directory)
    command.say("\n".join(lines(membership)))
    return command.DONE


MATRIX: Final = command.Command(
    brief="print which task sees which, and by which device filter",
    description="Print for each task which others it sees, and the device filters that show them. It shows what this "
    "task's view holds: ask a task without device filters to see all.",
    codes=command.READING,
    run=_run,
)
