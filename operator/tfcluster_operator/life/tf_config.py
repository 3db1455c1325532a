"""TF_CONFIG of a task, made of its view, and how large it may be.

It is no part of a template and no drift: the variable of a running pod says what was true when the pod was created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tfcluster_operator.declaration.spec import EVALUATOR, Job, Task, TFCluster
from tfcluster_resolver import contract

#: Linux runs no program with a longer one: NAME=VALUE and its end take 32 pages at most (execve(2), MAX_ARG_STRLEN),
#: and a page has 4 KiB at least.
LARGEST_TF_CONFIG: Final = 32 * 4096 - len(f"{contract.ENV_TF_CONFIG}=") - 1


def tf_config_of(cluster: TFCluster, task: Task, view: str) -> str:
    """Spell what a task sees as TF_CONFIG; in TFJob's layout each task sees the evaluators, too."""
    seen, evaluator = _read(view), cluster.job(EVALUATOR) if cluster.tf_config == "TFJob" else None
    if evaluator is not None and evaluator.replicas:
        addresses = tuple(cluster.address_of(Task(evaluator, index)) for index in range(evaluator.replicas))
        seen = replace(seen, jobs={**seen.jobs, EVALUATOR: addresses})
    return contract.tf_config(seen, job=task.job.name, index=task.index, address=cluster.address_of(task))


def largest_of(cluster: TFCluster, job: Job, view: str, readers: Iterable[int]) -> int:
    """Measure the longest TF_CONFIG among some tasks of a job."""
    tasks = _read(view).jobs.get(job.name, ())
    listed = tasks if isinstance(tasks, Mapping) else range(len(tasks))
    shown, hidden = -1, -1
    for index in readers:
        if index in listed:
            shown = max(shown, index)
        else:
            hidden = max(hidden, index)
    # Of equal clusters the highest index is the longest; and who must be put in by itself makes the cluster longer.
    return max(
        (len(tf_config_of(cluster, Task(job, index), view)) for index in (shown, hidden) if index >= 0), default=0
    )


@lru_cache(maxsize=64)
def _read(view: str) -> contract.View:
    return contract.load(view)
