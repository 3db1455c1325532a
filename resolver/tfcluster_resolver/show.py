"""What a task sees of its cluster, for people and for scripts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from tfcluster_resolver import contract
from tfcluster_resolver.membership import Membership
from tfcluster_resolver.task import own_task
from tfcluster_resolver.view_file import ViewFile


def look() -> Membership:
    """Read this process's view; TensorFlow, which takes seconds to import, is not needed for it.

    Returns:
        What the own task sees now.

    Raises:
        ViewError: the view cannot be used.
        TaskIdentityError: the environment names the own task wrongly.
    """
    own = own_task(os.environ)
    directory = os.environ.get(contract.ENV_DIRECTORY) or contract.DEFAULT_DIRECTORY
    return Membership(view=ViewFile(directory, None if own is None else own.index).read().view, own=own)


def describe(membership: Membership) -> dict[str, Any]:
    """Gather what ``show`` tells.

    Args:
        membership: what the own task sees.

    Returns:
        Plain values: cluster, epoch, rpc layer, own task, jobs with addresses, device filters, accelerators.
    """
    view, own = membership.view, membership.own
    holders = [(job, index) for job, index, _ in membership.tasks()]
    if own is not None and (own.job, own.index) not in holders:
        holders.append((own.job, own.index))
    return {
        "cluster": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
        "epoch": view.epoch,
        "rpcLayer": view.rpc_layer,
        "task": None if own is None else {"job": own.job, "index": own.index, "address": own.address},
        "jobs": {
            job: {str(i): address for i, address in tasks.items()} if isinstance(tasks, dict) else tasks
            for job, tasks in membership.jobs().items()
        },
        "deviceFilters": {
            job: {str(index): list(texts) for index, texts in tasks.items()}
            for job, tasks in membership.device_filters().items()
        },
        "accelerators": {
            f"/job:{job}/task:{index}": held for job, index in holders if (held := membership.accelerators(job, index))
        },
    }


def as_text(membership: Membership) -> str:
    """Spell what ``show`` tells for a person."""
    return "\n".join(_lines(describe(membership)))


def as_json(membership: Membership) -> str:
    """Spell what ``show`` tells for a script."""
    return json.dumps(describe(membership), indent=2)


def _lines(told: dict[str, Any]) -> Iterator[str]:
    cluster, own = told["cluster"], told["task"]
    yield f"cluster  {cluster['namespace']}/{cluster['name']}, epoch {told['epoch']}, {told['rpcLayer']}"
    if own is None:
        yield "task     none: this is no pod of the cluster"
    else:
        yield f"task     /job:{own['job']}/task:{own['index']} at {own['address']}"
    for job, tasks in sorted(told["jobs"].items()):
        by_index = tasks.items() if isinstance(tasks, dict) else enumerate(tasks)
        for index, address in by_index:
            name = f"/job:{job}/task:{index}"
            notes = [f"filters {' '.join(told['deviceFilters'].get(job, {}).get(str(index), []))}"]
            notes += [f"{resource} {count}" for resource, count in told["accelerators"].get(name, {}).items()]
            yield "  ".join([f"{name:<24} {address}", *(note for note in notes if note != "filters ")])
