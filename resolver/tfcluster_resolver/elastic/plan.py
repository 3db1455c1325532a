"""The changes of its cluster that a running program can follow.  Pure: no TensorFlow, no sockets, no clock.

Workers come, go and are replaced from the top of their job, because ParameterServerStrategy counts from 0 without a
gap.  A ps that holds variables stays: they would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tfcluster_resolver._arguments import first_of
from tfcluster_resolver.cluster import Task
from tfcluster_resolver.errors import RestartNeededError

#: Job to index to address.
Jobs = Mapping[str, Mapping[int, str]]

#: The jobs whose size can change.
ELASTIC: Final = ("worker", "ps")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that the running program does not follow, and why."""

    task: Task
    reason: str

    def __str__(self) -> str:
        return f"{self.task}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a resize.

    Attributes:
        epoch: the epoch of the cluster that was followed.
        added: the new tasks.
        removed: the removed tasks.
        replaced: the tasks that are another pod now, or have another address.
        refused: the changes that cannot be followed, each with its reason.
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
    """The cluster as the running program uses it."""

    #: The tasks that it uses, without the own job.
    jobs: Jobs
    own: str
    own_address: str
    incarnations: Mapping[tuple[str, int], str] = field(default_factory=dict)
    #: The tasks whose device filters TensorFlow has; later ones would have no effect.
    filtered: Collection[tuple[str, int]] = ()
    #: Returns the names of the objects on a ps, by its index.
    held: Callable[[int], Sequence[str]] = lambda _: ()


def plan(known: Known, wanted: Jobs, incarnations: Mapping[tuple[str, int], str], epoch: int) -> Change:
    """Decide which changes to ``wanted`` the running program can follow; incarnations are pods that replaced others."""
    _check_jobs(known, wanted)
    added: list[Task] = []
    removed: list[Task] = []
    replaced: list[Task] = []
    refused: list[Refusal] = []
    new_pods = {task for task, pod in incarnations.items() if known.incarnations.get(task) != pod}
    for job in ELASTIC:
        before, now = known.jobs.get(job, {}), wanted.get(job, {})
        count = next(index for index in range(len(now) + 1) if index not in now)  # up to the first gap
        refused += [
            Refusal(Task(job, index, now[index]), f"index {count} is missing, and the strategy counts without a gap")
            for index in sorted(now)
            if index > count
        ]
        came, bare = _coming(job, before, now, count, known.filtered)
        held = known.held if job == "ps" else lambda _: ()
        went, staying = _going(job, before, count, held)
        others = [
            Task(job, index, now[index])
            for index in sorted(before.keys() & now.keys())
            if before[index] != now[index] or (job, index) in new_pods
        ]
        lost = {task: names for task in others if (names := held(task.index))}
        added += came
        removed += went
        replaced += [task for task in others if task not in lost]
        refused += [*bare, *staying]
        refused += [
            Refusal(task, f"it is another pod or address now, and {first_of(names)} lived there: restore a checkpoint")
            for task, names in lost.items()
        ]
    return Change(epoch, tuple(added), tuple(removed), tuple(replaced), tuple(refused))


def only(change: Change, ready: Collection[Task]) -> Change:
    """Reduce a change to the tasks that are ready; new ones only without a gap below."""
    added: list[Task] = []
    for job in ELASTIC:
        coming = sorted(task for task in change.added if task.job == job)
        missing = next((at for at, task in enumerate(coming) if task not in ready), len(coming))
        added += coming[:missing]
    replaced = tuple(task for task in change.replaced if task in ready)
    return replace(change, added=tuple(added), replaced=replaced)


def without(change: Change, tasks: Collection[Task], reason: str) -> Change:
    added = tuple(task for task in change.added if task not in tasks)
    return replace(change, added=added, refused=(*change.refused, *(Refusal(task, reason) for task in tasks)))


def joined(earlier: Change, later: Change) -> Change:
    """Add up two changes, the later one planned after the earlier one."""
    return replace(
        later,
        added=earlier.added + later.added,
        removed=earlier.removed + later.removed,
        replaced=earlier.replaced + later.replaced,
    )


def changed(jobs: Jobs, change: Change) -> dict[str, dict[int, str]]:
    """Return the tasks that the program uses after a change."""
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
            refused.append(Refusal(task, f"it holds {first_of(holding[task.index])}, which would be lost"))
        elif task.index < top:
            refused.append(
                Refusal(task, f"/job:{job}/task:{top} above it stays, and the strategy counts without a gap")
            )
    return [task for task in gone if task.index > top], refused
