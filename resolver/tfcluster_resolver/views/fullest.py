"""What a task without device filters sees: the views of all tasks of a cluster, put together.

It decides which view counts where several tell of one job.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfcluster_resolver import contract
from tfcluster_resolver.errors import MalformedViewError


def fullest(views: Iterable[contract.View]) -> contract.View:
    """Merge the views of a cluster's tasks to what a task without device filters sees.

    A view tells a job as a list only if it shows all of its tasks, so the newest list is the whole job.  A job that no
    view shows whole is the union of what the views show of it.

    Returns:
        One view, at the newest of their epochs.

    Raises:
        MalformedViewError: together they name more tasks than a view may.
    """
    by_age = sorted(views, key=lambda view: view.epoch)
    newest = by_age[-1]
    jobs: dict[str, Any] = {}
    filters: dict[str, Any] = {}
    accelerators: dict[str, contract.JobAccelerators] = {}
    for job in sorted({job for view in by_age for job in view.jobs}):
        showing = [view for view in by_age if job in view.jobs]
        whole = [view for view in showing if not isinstance(view.jobs[job], Mapping)][-1:]
        jobs[job] = whole[0].jobs[job] if whole else _union(showing, job)
        if ranges := _filters_in(whole or showing, job):
            filters[job] = ranges
    for view in by_age:
        accelerators.update(view.accelerators)
    return contract.View(
        name=newest.name,
        namespace=newest.namespace,
        uid=newest.uid,
        epoch=newest.epoch,
        rpc_layer=newest.rpc_layer,
        jobs=jobs,
        device_filters=filters,
        accelerators=accelerators,
        leaving=newest.leaving,
        # NB: the chief alone is told of pods.
        incarnations=next((view.incarnations for view in reversed(by_age) if view.incarnations), {}),
    )


def _union(showing: Iterable[contract.View], job: str) -> Mapping[int, str]:
    union: dict[int, str] = {}
    for view in showing:
        tasks = view.jobs[job]
        union.update(tasks if isinstance(tasks, Mapping) else enumerate(tasks))
    return dict(sorted(union.items()))


def _filters_in(views: Iterable[contract.View], job: str) -> tuple[contract.FilterRange, ...]:
    by_task: dict[int, tuple[str, ...]] = {}
    for one in (one for view in views for one in view.device_filters.get(job, ())):
        by_task.update(dict.fromkeys(range(one.start, one.stop), one.filters))
        if len(by_task) > contract.MOST_RANGED:
            raise MalformedViewError(f"the views have filters of over {contract.MOST_RANGED} tasks of job {job!r}")
    return tuple(contract.FilterRange(index, index + 1, texts) for index, texts in sorted(by_task.items()))
