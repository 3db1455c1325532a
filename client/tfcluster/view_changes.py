"""What an edit of a TFCluster changes in what its tasks see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tfcluster.rendering import TaskView
from tfcluster.task_names import spell
from tfcluster_resolver import contract

Tasks = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ViewChange:
    """What changes in what some tasks of one job see.

    Attributes:
        job: the job.
        tasks: the indices of those who see it.
        epochs: the epoch before and after.
        added: the tasks that they see in addition.
        removed: the tasks that they see no more.
        moved: the tasks whose address changes.
        filters: the tasks whose device filters change, as TensorFlow is told them.
        others: what else differs, such as "rpcLayer".
    """

    job: str
    tasks: tuple[int, ...]
    epochs: tuple[int, int]
    added: Tasks
    removed: Tasks
    moved: Tasks
    filters: Tasks
    others: tuple[str, ...]


def view_changes(before: tuple[TaskView, ...], after: tuple[TaskView, ...]) -> list[ViewChange]:
    """Compare what tasks see now with what they will see; tasks that come or go are left out."""
    read = {(old.job, index): old for old in before for index in old.tasks}
    found = []
    for new in after:
        by_view: dict[int, tuple[TaskView, list[int]]] = {}
        for index in new.tasks:
            if (old := read.get((new.job, index))) is not None:
                by_view.setdefault(id(old), (old, []))[1].append(index)
        found += [
            _compared(new.job, tuple(readers), old.view, new.view)
            for old, readers in by_view.values()
            if _lasting(old.view) != _lasting(new.view)
        ]
    return found


def _lasting(view: contract.View) -> contract.View:
    """Leave out what comes and goes with pods, and changes nothing for the tasks that stay."""
    return replace(view, leaving={}, incarnations={})


def _compared(job: str, tasks: tuple[int, ...], old: contract.View, new: contract.View) -> ViewChange:
    was, will = dict(_addresses(old)), dict(_addresses(new))
    told, tells = dict(_filters(old)), dict(_filters(new))
    kept = was.keys() & will.keys()
    others = {
        "rpcLayer": old.rpc_layer != new.rpc_layer,
        "accelerators": old.accelerators != new.accelerators,
        "isolation": old.isolation != new.isolation,
    }
    return ViewChange(
        job=job,
        tasks=tasks,
        epochs=(old.epoch, new.epoch),
        added=tuple(sorted(will.keys() - was.keys())),
        removed=tuple(sorted(was.keys() - will.keys())),
        moved=tuple(sorted(task for task in kept if was[task] != will[task])),
        filters=tuple(sorted(task for task in kept if told.get(task, ()) != tells.get(task, ()))),
        others=tuple(name for name, differs in others.items() if differs),
    )


def _addresses(view: contract.View) -> Iterator[tuple[tuple[str, int], str]]:
    for job, tasks in view.jobs.items():
        for index, address in tasks.items() if isinstance(tasks, Mapping) else enumerate(tasks):
            yield (job, index), address


def _filters(view: contract.View) -> Iterator[tuple[tuple[str, int], tuple[str, ...]]]:
    for job, ranges in view.device_filters.items():
        for one in ranges:
            for index in range(one.start, one.stop):
                yield (job, index), tuple(one.filters)


def spell_tasks(tasks: Tasks) -> str:
    """Spell tasks in short, such as ``ps-0, worker-2..5``."""
    runs: list[tuple[str, int, int]] = []
    for job, index in sorted(tasks):
        if runs and runs[-1][0] == job and runs[-1][2] == index - 1:
            runs[-1] = (job, runs[-1][1], index)
        else:
            runs.append((job, index, index))
    return ", ".join(spell(*run) for run in runs)
