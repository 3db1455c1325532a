"""How users name tasks: JOB for all tasks of a job, JOB-INDEX or JOB/INDEX for one; and how they are printed.

A cluster without a name gets a placeholder here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.errors import TFClusterError
from tfcluster_operator.declaration import naming

_TASK: Final = re.compile(r"(?P<job>.+)[-/](?P<index>[0-9]{1,9})")


@dataclass(frozen=True, slots=True, order=True)
class TaskName:
    """One task: its job and its index in it."""

    job: str
    index: int

    def __str__(self) -> str:
        return spell(self.job, self.index)


def spell(job: str, index: int, last: int | None = None) -> str:
    """Format a task as its pod is named, such as ``worker-0``; those up to ``last`` as ``worker-0..3``."""
    return f"{naming.dns_job(job)}-{index}" + (f"..{last}" if last is not None and last > index else "")


def runs_of(tasks: Iterable[tuple[str, int]], key: Any = lambda _: None) -> list[tuple[str, int, int]]:
    """Group neighbouring tasks of one job with the same key: job, start and stop of each group."""
    runs: list[tuple[str, int, int]] = []
    last: Any = None
    for job, index in tasks:
        now = key((job, index))
        if runs and runs[-1][::2] == (job, index) and now == last:
            runs[-1] = (job, runs[-1][1], index + 1)
        else:
            runs.append((job, index, index + 1))
        last = now
    return runs


def names_one(word: str) -> bool:
    """Return whether a word has the form of a single task."""
    return _TASK.fullmatch(word) is not None


def read(word: str, jobs: Iterable[str]) -> TaskName | None:
    """Read a task, ``worker-0`` or ``worker/0``; None if the word is not a task of one of the jobs."""
    if (match := _TASK.fullmatch(word)) and (job := _job_of(match["job"], jobs)):
        return TaskName(job, int(match["index"]))
    return None


def _job_of(word: str, jobs: Iterable[str]) -> str | None:
    """Find a job by its name, or by its form in the names of pods."""
    return next((job for job in jobs if word in (job, naming.dns_job(job))), None)


class NoTaskError(TFClusterError):
    """The cluster does not have this job or task; the message lists its jobs and tasks."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen tasks: jobs with those that are added later, single tasks, or ``everything`` if none was named."""

    jobs: frozenset[str] = frozenset()
    tasks: frozenset[TaskName] = frozenset()
    everything: bool = True

    def __contains__(self, task: object) -> bool:
        return self.everything or task in self.tasks or (isinstance(task, TaskName) and task.job in self.jobs)


def declared(cluster: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of tasks that a TFCluster declares, by job."""
    jobs: Mapping[str, Any] = (cluster.get("spec") or {}).get("jobs") or {}
    return {name: int((job or {}).get("replicas", 1)) for name, job in sorted(jobs.items())}


def task_of(pod: Mapping[str, Any]) -> TaskName | None:
    """Return the task of a pod, by its labels; None if it is not the pod of a task."""
    return task_of_labels(pod["metadata"].get("labels") or {})


def task_of_labels(labels: Mapping[str, str]) -> TaskName | None:
    job, index = labels.get(naming.LABEL_JOB), labels.get(naming.LABEL_TASK_INDEX, "")
    return TaskName(job, int(index)) if job and index.isascii() and index.isdecimal() else None


def controller_of(body: Mapping[str, Any]) -> str:
    """Return the UID of an object's controller, or ""."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")


def verdict(body: Mapping[str, Any]) -> str:
    """Return how a TFCluster has finished, as in ``failed: MESSAGE``; "" if it has not."""
    for one in (body.get("status") or {}).get("conditions") or ():
        if one.get("type") in {"Succeeded", "Failed"} and one.get("status") == "True":
            message = one.get("message") or one.get("reason", "")
            return str(one["type"]).lower() + (f": {message}" if message else "")
    return ""


def choose(words: Sequence[str], jobs: Mapping[str, int], others: Iterable[TaskName], cluster: str) -> Selection:
    if not words:
        return Selection()
    left = set(others)
    known = [*jobs, *sorted({one.job for one in left})]
    whole, single = set(), set()
    for word in words:
        task, job = read(word, known), _job_of(word, known)
        if task is not None and (task.index < jobs.get(task.job, 0) or task in left):
            single.add(task)
        elif job is not None:
            whole.add(job)
        else:
            raise NoTaskError(
                f"{cluster} has no {'task' if names_one(word) else 'job'} {word}; it has {listed(jobs)}",
                hint="Name a job, such as worker, or a task, such as worker-0.",
            )
    return Selection(frozenset(whole), frozenset(single), everything=False)


def listed(jobs: Mapping[str, int]) -> str:
    """Format all tasks, given the number of tasks by job, such as ``ps-0, worker-0 to worker-3``."""
    spans = ([spell(job, 0), spell(job, count - 1)] for job, count in jobs.items() if count)
    return ", ".join(" to ".join(dict.fromkeys(span)) for span in spans) or "no tasks"


def name_of(metadata: Mapping[str, Any]) -> str:
    """Return an object's name; a generated name ends in xxxxx here, and "" means that it is missing."""
    name, prefix = metadata.get("name"), metadata.get("generateName")
    if isinstance(name, str) and name:
        return name
    return f"{prefix}xxxxx" if isinstance(prefix, str) and prefix else ""
