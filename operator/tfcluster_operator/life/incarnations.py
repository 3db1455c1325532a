"""Which pod each task is: only the chief's view has this, so that the chief reconnects to a task with a new pod.

An address outlives its pods, so the coordinator could not detect a new pod otherwise.  The entry is written rarely:

* A pod that replaces one in the view is a repair: it is written immediately.
* A task that the view does not list yet is added once no pod is missing: a launch costs one write for all pods.
* Any other change to a view updates this, too.

The chief itself, and evaluators, which receive no connections, are left out; so is everything while a cluster is
suspended or before its first start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import CHIEF, EVALUATOR
from tfcluster_operator.life.roster import Roster, Stage
from tfcluster_resolver import contract

#: 24 bits: a pod and its successor have the same with a probability of one in 16 million.
_LENGTH: Final = 6

#: Identifies the pod of each task, by job and index.
Told = Mapping[str, Mapping[int, str]]


class Pods(NamedTuple):
    """The UID of each task's pod, by job and index, and whether each task that should have a pod has one."""

    uids: Mapping[str, Mapping[int, str]]
    complete: bool


def pods_of(roster: Roster, published: Iterable[Told]) -> Pods | None:
    """Find the pod of each task but the chief and evaluators; None if the view does not list pods."""
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
    """Decide which pods a view lists."""
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
    """Return the pods in the published view whose tasks are still visible."""
    still: dict[str, Mapping[int, str]] = {}
    for job, tasks in view.jobs.items():
        seen = tasks if isinstance(tasks, Mapping) else range(len(tasks))
        if of_job := {index: name for index, name in before.get(job, {}).items() if index in seen}:
            still[job] = of_job
    return still
