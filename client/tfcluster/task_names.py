"""How a user names tasks: JOB for all tasks of a job, JOB/INDEX for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfcluster.errors import TFClusterError
from tfcluster_operator.model import naming


@dataclass(frozen=True, slots=True, order=True)
class TaskName:
    """One task: its job and its index in it."""

    job: str
    index: int

    def __str__(self) -> str:
        """Spell it as users do: ``worker/0``."""
        return f"{self.job}/{self.index}"


class NoTaskError(TFClusterError):
    """The cluster has no such job or task; the words list those that it has."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The tasks that a user chose, in all of the time to come: a job's later tasks are in it, too.

    Attributes:
        jobs: jobs of which every task is meant.
        tasks: single tasks.
        everything: whether nothing was named, which means all tasks.
    """

    jobs: frozenset[str] = frozenset()
    tasks: frozenset[TaskName] = frozenset()
    everything: bool = True

    def __contains__(self, task: object) -> bool:
        """Tell whether a task is meant."""
        return self.everything or task in self.tasks or (isinstance(task, TaskName) and task.job in self.jobs)


def declared(cluster: Mapping[str, Any]) -> dict[str, int]:
    """Count the tasks of each job that a TFCluster declares.

    Args:
        cluster: the TFCluster as the API server has it.

    Returns:
        The number of tasks by job, in the order of their names.
    """
    jobs: Mapping[str, Any] = (cluster.get("spec") or {}).get("jobs") or {}
    return {name: int((job or {}).get("replicas", 1)) for name, job in sorted(jobs.items())}


def task_of(pod: Mapping[str, Any]) -> TaskName | None:
    """Give the task whose pod this is, by its labels; None where it is no task's."""
    labels = pod["metadata"].get("labels") or {}
    job, index = labels.get(naming.LABEL_JOB), labels.get(naming.LABEL_TASK_INDEX, "")
    return TaskName(job, int(index)) if job and index.isascii() and index.isdecimal() else None


def choose(words: Sequence[str], jobs: Mapping[str, int], others: Iterable[TaskName], cluster: str) -> Selection:
    """Read which tasks a user named.

    Args:
        words: JOB or JOB/INDEX each; none means all tasks.
        jobs: the number of declared tasks by job.
        others: tasks that are not declared and have pods still.
        cluster: the TFCluster's name, for messages.

    Returns:
        The tasks.

    Raises:
        NoTaskError: there is no such job or task.
    """
    if not words:
        return Selection()
    left = set(others)
    whole, single = set(), set()
    for word in words:
        job, slash, number = word.partition("/")
        if not slash and (job in jobs or any(one.job == job for one in left)):
            whole.add(job)
            continue
        if slash and number.isascii() and number.isdecimal():
            task = TaskName(job, int(number))
            if task.index < jobs.get(job, 0) or task in left:
                single.add(task)
                continue
        raise NoTaskError(
            f"{cluster} has no {'task' if slash else 'job'} {word}; it has {_listed(jobs)}",
            hint="Name a job, such as worker, or a task, such as worker/0.",
        )
    return Selection(frozenset(whole), frozenset(single), everything=False)


def _listed(jobs: Mapping[str, int]) -> str:
    spans = [f"{job}/0" + (f" to {job}/{count - 1}" if count > 1 else "") for job, count in jobs.items() if count]
    return ", ".join(spans) or "no tasks"
