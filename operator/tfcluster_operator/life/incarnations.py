"""Which pod each task is: told to the chief alone, so that it connects again to a task whose pod was replaced.

An address outlives the pods behind it, so the coordinator could not tell otherwise.  What it is told is written rarely:

* A pod that stands in place of one that the view names is a repair, and told at once.
* A task that the view does not name yet is told of when no pod is missing: a launch costs one write, however many pods.
* Whatever else changes a view brings it up to date in this as well.

Of the chief itself nothing is told, nor of an evaluator, to which nobody connects, and nothing while a cluster is
suspended or comes for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import CHIEF, EVALUATOR
from tfcluster_operator.life.roster import Roster, Stage
from tfcluster_resolver import contract

#: Sixteen millions: that a pod and its successor have the same is as unlikely.
_LENGTH: Final = 6

#: What stands for the pod of a task, by job and index.
Told = Mapping[str, Mapping[int, str]]


class Pods(NamedTuple):
    """The UID of each task's pod, by job and index, and whether each task that is to have a pod has one."""

    uids: Mapping[str, Mapping[int, str]]
    complete: bool


def pods_of(roster: Roster, published: Iterable[Told]) -> Pods | None:
    """Look which pod each task is.

    Returns:
        The pods of all tasks but the chief and evaluators; None where nothing is to be told.
    """
    if roster.cluster.suspend or roster.cluster.job(CHIEF) is None:
        return None
    uids: dict[str, dict[int, str]] = {}
    complete = True
    for job in roster.cluster.jobs:
        if job.name in {CHIEF, EVALUATOR}:
            continue
        of_job = uids.setdefault(job.name, {})
        for place in roster.of(job):
            if (pod := place.own) is not None:
                of_job[place.task.index] = pod.meta.uid
            elif place.stage is not Stage.COMPLETED:
                complete = False
    return Pods(uids, complete) if complete or any(published) else None


def told(pods: Pods, view: contract.View, before: Told) -> tuple[Told, bool]:
    """Decide what a view tells of the pods."""
    everything: dict[str, Mapping[int, str]] = {}
    urgent = False
    for job, tasks in view.jobs.items():
        uids, known = pods.uids.get(job, {}), before.get(job, {})
        of_job: dict[int, str] = {}
        for index in tasks if isinstance(tasks, Mapping) else range(len(tasks)):
            if (uid := uids.get(index)) is not None:
                of_job[index] = digest(uid)[:_LENGTH]
                urgent = urgent or (index in known and known[index] != of_job[index])
            elif index in known and not pods.complete:
                of_job[index] = known[index]
        if of_job:
            everything[job] = of_job
    return everything, urgent or pods.complete


def kept(view: contract.View, before: Told) -> Told:
    """Return what the published view tells of the tasks that are still seen."""
    still: dict[str, Mapping[int, str]] = {}
    for job, tasks in view.jobs.items():
        seen = tasks if isinstance(tasks, Mapping) else range(len(tasks))
        if of_job := {index: name for index, name in before.get(job, {}).items() if index in seen}:
            still[job] = of_job
    return still
