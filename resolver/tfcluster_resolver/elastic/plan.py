"""What a running program can follow of a change of its cluster.  Pure: no TensorFlow, no sockets, no clock.

It decides which tasks come, go and are replaced, and which changes are refused, each with its reason.  A worker can do
all of these, from the top of its job, because ParameterServerStrategy counts from 0 without a gap.  A ps that holds
variables stays: they would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tfcluster_resolver.cluster import Task
from tfcluster_resolver.errors import RestartNeededError

#: Job to index to address.
Jobs = Mapping[str, Mapping[int, str]]

#: The jobs whose size can change.
ELASTIC: Final = ("worker", "ps")
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that the running program does not follow, and why."""

    task: Task
    reason: str

    def __str__(self) -> str:
        return f"{self.task}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Change:
    """What a resize did.

    Attributes:
        epoch: the epoch of the cluster that was followed.
        added: the tasks that came.
        removed: the tasks that went.
        replaced: the tasks that are another pod now, or have another address.
        refused: the changes that are not followed, each with its reason.
    """

    epoch: int
    added: tuple[Task, ...] = ()
    removed: tuple[Task, ...] = ()
    replaced: tuple[Task, ...] = ()
    refused: tuple[Refusal, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.replaced)


@dataclass(frozen=True, slots=True)
class Known:
    """What the running program is.

    Attributes:
        jobs: the tasks that it uses, without the own job.
        own: the own job.
        own_address: the own task's address.
        incarnations: which pod each task is, by job and index, as far as that is known.
        filtered: job and index of the tasks whose device filters TensorFlow has; later ones would not hold.
        held: names what lives on a ps, by its index.
    """

    jobs: Jobs
    own: str
    own_address: str
    incarnations: Mapping[tuple[str, int], str] = field(default_factory=dict)
    filtered: Collection[tuple[str, int]] = ()
    held: Callable[[int], Sequence[str]] = lambda _: ()


def plan(known: Known, wanted: Jobs, incarnations: Mapping[tuple[str, int], str], epoch: int) -> Change:
    """Decide what of a cluster the running program follows.

    Args:
        known: what the running program is.
        wanted: the cluster as it should be.
        incarnations: which pod each task is now, as far as that is known.
        epoch: the epoch of ``wanted``.

    Returns:
        The change to make.

    Raises:
        RestartNeededError: jobs came or went, or the own address changed.
    """
    _check_jobs(known, wanted)
    added: list[Task] = []
    removed: list[Task] = []
    replaced: list[Task] = []
    refused: list[Refusal] = []
    for job in ELASTIC:
        before, now = known.jobs.get(job, {}), wanted.get(job, {})
        held = known.held if job == "ps" else _nothing
        count = _dense(now)
        refused += [
            Refusal(Task(job, index, now[index]), f"index {count} is missing, and the strategy counts without a gap")
            for index in sorted(now)
            if index > count
        ]
        came, late = _coming(job, before, now, count, known.filtered)
        added += came
        refused += late
        went, staying = _going(job, before, count, held)
        removed += went
        refused += staying
        others = {
            index
            for index in before.keys() & now.keys()
            if before[index] != now[index] or _is_another(known.incarnations, incarnations, (job, index))
        }
        changed, lost = _replacing(job, now, sorted(others), held)
        replaced += changed
        refused += lost
    return Change(epoch, tuple(added), tuple(removed), tuple(replaced), tuple(refused))


def only(change: Change, ready: Collection[Task]) -> Change:
    """Reduce a change to the tasks that are ready; of those that come, to the ones without a gap below."""
    added: list[Task] = []
    for job in ELASTIC:
        coming = sorted(task for task in change.added if task.job == job)
        missing = next((at for at, task in enumerate(coming) if task not in ready), len(coming))
        added += coming[:missing]
    replaced = tuple(task for task in change.replaced if task in ready)
    return Change(change.epoch, tuple(added), change.removed, replaced, change.refused)


def without(change: Change, tasks: Collection[Task], reason: str) -> Change:
    """Refuse tasks that were to come."""
    added = tuple(task for task in change.added if task not in tasks)
    refused = (*change.refused, *(Refusal(task, reason) for task in tasks))
    return Change(change.epoch, added, change.removed, change.replaced, refused)


def joined(earlier: Change, later: Change) -> Change:
    """Give two changes, of which the later one was planned when the earlier one was made, as one."""
    return Change(
        later.epoch,
        earlier.added + later.added,
        earlier.removed + later.removed,
        earlier.replaced + later.replaced,
        later.refused,
    )


def changed(jobs: Jobs, change: Change) -> dict[str, dict[int, str]]:
    """Give the tasks that the program uses after a change."""
    after = {job: dict(tasks) for job, tasks in jobs.items()}
    for task in change.removed:
        del after[task.job][task.index]
    for task in (*change.added, *change.replaced):
        after.setdefault(task.job, {})[task.index] = task.address
    return after


def _check_jobs(known: Known, wanted: Jobs) -> None:
    there = {job for job, tasks in known.jobs.items() if tasks} - {known.own}
    asked = {job for job, tasks in wanted.items() if tasks or job in there} - {known.own}
    if there != asked:
        raise RestartNeededError(
            f"the jobs are {', '.join(sorted(asked)) or 'none'} in place of {', '.join(sorted(there))}. Nothing was "
            "changed: restart the coordinator to use them"
        )
    own = wanted.get(known.own, {})
    if own and known.own_address and known.own_address not in own.values():
        raise RestartNeededError(
            f"the address of this process was {known.own_address} and is now {', '.join(own.values())}, where the "
            "other tasks do not reach it. Nothing was changed: restart the coordinator"
        )


def _nothing(_: int) -> Sequence[str]:
    return ()


def _dense(tasks: Mapping[int, str]) -> int:
    """Count the tasks from 0 up to the first gap."""
    return next(index for index in range(len(tasks) + 1) if index not in tasks)


def _coming(
    job: str, before: Mapping[int, str], now: Mapping[int, str], count: int, filtered: Collection[tuple[str, int]]
) -> tuple[list[Task], list[Refusal]]:
    late = [Task(job, index, now[index]) for index in range(len(before), count)]
    if not any(name == job for name, _ in filtered):
        return late, []
    bare = next((at for at, task in enumerate(late) if (job, task.index) not in filtered), len(late))
    reason = (
        "it has no device filters and the other tasks of its job have some, which would not hold for it: TensorFlow "
        "keeps those that it got when this process connected. Connect by connect_to_cluster() with a view that "
        "declares maxReplicas, and restart the coordinator"
    )
    return late[:bare], [Refusal(task, reason) for task in late[bare:]]


def _going(
    job: str, before: Mapping[int, str], count: int, held: Callable[[int], Sequence[str]]
) -> tuple[list[Task], list[Refusal]]:
    first = max(count, 1)
    gone = [Task(job, index, before[index]) for index in range(first, len(before))]
    refused = [] if count or not before else [Refusal(Task(job, 0, before[0]), "the strategy needs one of them")]
    holding = {task.index: names for task in gone if (names := held(task.index))}
    top = max(holding, default=-1)
    for task in gone:
        if task.index in holding:
            refused.append(Refusal(task, f"it holds {_listed(holding[task.index])}, which would be lost"))
        elif task.index < top:
            refused.append(
                Refusal(task, f"/job:{job}/task:{top} above it stays, and the strategy counts without a gap")
            )
    return [task for task in gone if task.index > top], refused


def _is_another(
    before: Mapping[tuple[str, int], str], now: Mapping[tuple[str, int], str], task: tuple[str, int]
) -> bool:
    return task in before and task in now and before[task] != now[task]


def _replacing(
    job: str, now: Mapping[int, str], others: Sequence[int], held: Callable[[int], Sequence[str]]
) -> tuple[list[Task], list[Refusal]]:
    changed: list[Task] = []
    refused: list[Refusal] = []
    for index in others:
        task = Task(job, index, now[index])
        names = held(index)
        if names:
            reason = f"it is another pod or address now, and {_listed(names)} lived there: restore a checkpoint"
            refused.append(Refusal(task, reason))
        else:
            changed.append(task)
    return changed, refused


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
