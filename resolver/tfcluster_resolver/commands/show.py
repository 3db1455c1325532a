"""``show``: the cluster as this task sees it, for people or as JSON.  It does not need TensorFlow."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from tfcluster_resolver import contract
from tfcluster_resolver.accelerators import visible_accelerators
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.commands import command

_ISOLATION: Final = {
    "Cluster": "Cluster: NetworkPolicies let the tasks of this cluster reach each other, and no others",
    "DeviceFilters": "DeviceFilters: NetworkPolicies let tasks reach each other where one sees the other",
}


def as_json(membership: Membership, path: Path) -> str:
    """Describe the cluster for programs; ``granted`` is null while it is not known that the task runs."""
    view, own = membership.view, membership.own
    document = {
        "cluster": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
        "epoch": view.epoch,
        "view": str(path),
        "rpcLayer": view.rpc_layer,
        "isolation": view.isolation or None,
        "task": None if own is None else own._asdict(),
        "jobs": membership.jobs(),
        "deviceFilters": membership.device_filters(),
        "accelerators": _accelerators(membership),
        "visible": visible_accelerators(),
    }
    return json.dumps(document, indent=2)


def as_text(membership: Membership, path: Path) -> str:
    view, own = membership.view, membership.own
    lines = [
        f"cluster      {view.namespace}/{view.name}, epoch {view.epoch}, rpc layer {view.rpc_layer}",
        f"view         {path}",
        *([f"isolation    {_ISOLATION.get(view.isolation, view.isolation)}"] if view.isolation else []),
        f"this task    {f'{own} at {own.address}' if own is not None else 'none (not in one of its pods)'}",
        "tasks",
    ]
    held = _accelerators(membership)
    tasks = list(membership.tasks())
    width = max((len(str(task)) for task in tasks), default=0)
    for task in tasks:
        counts = "".join(f"  {_spell(*each)}" for each in held.get(task.job, {}).get(task.index, {}).items())
        mark = "  (this task)" if own is not None and own[:2] == task[:2] else ""
        lines.append(f"  {task!s:{width}}  {task.address}{counts}{mark}")
    lines += ["  none"] * (not tasks)
    seen = visible_accelerators()
    counted = "not known" if seen is None else ", ".join(f"{n} {device}" for device, n in sorted(seen.items()))
    lines += [f"accelerators visible here: {counted or 'none'}", "device filters"]
    for job, ranges in sorted(view.device_filters.items()):
        for one in ranges:
            last = f" to task:{one.stop - 1}" if one.stop - 1 > one.start else ""
            lines.append(f"  /job:{job}/task:{one.start}{last} sees {', '.join(one.filters)}")
    return "\n".join([*lines, *["  none: every task sees every other"] * (lines[-1] == "device filters")])


def _accelerators(membership: Membership) -> dict[str, dict[int, dict[str, dict[str, int | None]]]]:
    """Count the devices of each task; tasks without a request are left out."""
    here = None if membership.own is None else membership.own[:2]
    tasks = [task[:2] for task in membership.tasks()]
    if here is not None and here not in tasks:
        tasks.append(here)
    held: dict[str, dict[int, dict[str, dict[str, int | None]]]] = {}
    for job, index in tasks:
        declared = membership.view.accelerators.get(job, contract.JobAccelerators())
        # A device plugin grants the whole request or none of it, and a pod that was granted none does not start.
        runs = (job, index) == here or index in declared.tasks
        for resource, count in membership.accelerators(job, index).items():
            requested = declared.limits.get(resource)
            held.setdefault(job, {}).setdefault(index, {})[resource] = {
                "requested": requested,
                "granted": requested if runs else None,
                "healthy": count,
            }
    return held


def _spell(resource: str, counts: dict[str, int | None]) -> str:
    return f"{resource}: {', '.join(f'{count} {word}' for word, count in counts.items() if count is not None)}"


def _run(options: argparse.Namespace) -> int:
    membership, path = command.read(options.directory)
    command.say(as_json(membership, path) if options.json else as_text(membership, path))
    return command.DONE


SHOW: Final = command.Command(
    brief="print the cluster that this task sees",
    description="Print epoch, tasks and their addresses, the own task, device filters and accelerators. Works without "
    "TensorFlow.",
    codes=command.READING,
    options=command.JSON,
    run=_run,
)
