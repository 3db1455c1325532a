"""What ``show`` prints: the cluster as this task sees it, for people or as JSON.  It needs no TensorFlow."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from tfcluster_resolver import contract
from tfcluster_resolver.accelerators import visible_accelerators
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.commands import exit_codes
from tfcluster_resolver.commands.command import Command, add_json, say
from tfcluster_resolver.commands.reading import read

_ISOLATION: Final = {
    "Cluster": "Cluster: NetworkPolicies let the tasks of this cluster reach each other, and no others",
    "DeviceFilters": "DeviceFilters: NetworkPolicies let tasks reach each other where one sees the other",
}


def as_json(membership: Membership, path: Path) -> str:
    """Describe the cluster for programs.

    Returns:
        A JSON object: ``cluster``, ``epoch``, ``view`` (the file), ``rpcLayer``, ``isolation`` (who reaches the tasks'
        ports: "Cluster", "DeviceFilters", or null for everybody), ``task`` (own job, index and address, or null),
        ``jobs`` (as ``ClusterSpec.as_dict()``), ``deviceFilters`` (job, index, filters), ``accelerators`` (job, index,
        resource, then ``requested``, ``granted`` and ``healthy``; ``granted`` is null while it is not known that the
        task runs) and ``visible`` (device type and count in this container, or null).
    """
    view, own = membership.view, membership.own
    document: dict[str, Any] = {
        "cluster": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
        "epoch": view.epoch,
        "view": str(path),
        "rpcLayer": view.rpc_layer,
        "isolation": view.isolation or None,
        "task": None if own is None else {"job": own.job, "index": own.index, "address": own.address},
        "jobs": membership.jobs(),
        "deviceFilters": membership.device_filters(),
        "accelerators": _accelerators(membership),
        "visible": visible_accelerators(),
    }
    return json.dumps(document, indent=2)


def as_text(membership: Membership, path: Path) -> str:
    """Describe the cluster for people."""
    view, own = membership.view, membership.own
    here = f"/job:{own.job}/task:{own.index} at {own.address}" if own is not None else "none (not in one of its pods)"
    lines = [
        f"cluster      {view.namespace}/{view.name}, epoch {view.epoch}, rpc layer {view.rpc_layer}",
        f"view         {path}",
        *([f"isolation    {_ISOLATION.get(view.isolation, view.isolation)}"] if view.isolation else []),
        f"this task    {here}",
        "tasks",
    ]
    held = _accelerators(membership)
    tasks = list(membership.tasks())
    width = max((len(f"/job:{job}/task:{index}") for job, index, _ in tasks), default=0)
    for job, index, address in tasks:
        counts = "".join(f"  {_spell(*each)}" for each in held.get(job, {}).get(index, {}).items())
        mark = "  (this task)" if own is not None and (own.job, own.index) == (job, index) else ""
        lines.append(f"  {f'/job:{job}/task:{index}':{width}}  {address}{counts}{mark}")
    lines += ["  none"] * (not tasks)
    seen = visible_accelerators()
    visible = (
        "not known" if seen is None else ", ".join(f"{n} {device}" for device, n in sorted(seen.items())) or "none"
    )
    return "\n".join([*lines, f"accelerators visible here: {visible}", "device filters", *_filter_lines(membership)])


def _filter_lines(membership: Membership) -> list[str]:
    lines = []
    for job, ranges in sorted(membership.view.device_filters.items()):
        for one in ranges:
            last = one.stop - 1
            tasks = f"task:{one.start}" if last == one.start else f"task:{one.start} to task:{last}"
            lines.append(f"  /job:{job}/{tasks} sees {', '.join(one.filters)}")
    return lines or ["  none: every task sees every other"]


def _accelerators(membership: Membership) -> dict[str, dict[int, dict[str, dict[str, int | None]]]]:
    """Count what each task holds; a task that asks for nothing is left out."""
    own = membership.own
    here = None if own is None else (own.job, own.index)
    tasks = [(job, index) for job, index, _ in membership.tasks()]
    if here is not None and here not in tasks:
        tasks.append(here)
    held: dict[str, dict[int, dict[str, dict[str, int | None]]]] = {}
    for job, index in tasks:
        healthy = membership.accelerators(job, index)
        declared = membership.view.accelerators.get(job, contract.JobAccelerators())
        # A device plugin grants the whole request or none of it, and a pod that was granted none does not start.
        runs = (job, index) == here or index in declared.tasks
        for resource, count in healthy.items():
            requested = declared.limits.get(resource)
            held.setdefault(job, {}).setdefault(index, {})[resource] = {
                "requested": requested,
                "granted": requested if runs else None,
                "healthy": count,
            }
    return held


def _spell(resource: str, counts: dict[str, int | None]) -> str:
    told = [f"{count} {word}" for word, count in counts.items() if count is not None]
    return f"{resource}: {', '.join(told)}"


def _run(options: argparse.Namespace) -> int:
    membership, path = read(options.directory)
    say(as_json(membership, path) if options.json else as_text(membership, path))
    return exit_codes.DONE


SHOW: Final = Command(
    brief="print the cluster that this task sees",
    description="Print epoch, tasks and their addresses, the own task, device filters and accelerators. Needs no "
    "TensorFlow.",
    codes=exit_codes.READING,
    add_options=add_json,
    run=_run,
)
