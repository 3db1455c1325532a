"""``matrix``: who sees whom, for people or as JSON.  How that is worked out is in ``sight``."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.commands import exit_codes
from tfcluster_resolver.commands.command import Command, add_json, say
from tfcluster_resolver.commands.reading import read
from tfcluster_resolver.commands.sight import Sight, is_complete, rows

_INCOMPLETE: Final = (
    "Tasks that this one does not see, and their device filters, may be missing here: ask a task without device "
    "filters, such as the chief."
)


def as_json(membership: Membership, *, whole: bool = False) -> str:
    """Describe who sees whom, for programs.

    Args:
        membership: the cluster.
        whole: whether the view is known to show the whole cluster, whatever the own task's filters are.

    Returns:
        A JSON object: ``cluster``, ``epoch``, ``isolation`` (whose connections the network lets through, or null),
        ``complete`` (whether the view certainly shows the whole cluster) and ``rows``, each with ``job``, ``tasks``
        ([start, stop]), ``filters`` (null: not in the view), ``sees`` and ``hidden`` (each with ``job``, ``tasks``, and
        ``by``, ``devices`` and ``blocked`` where they say something).
    """
    view = membership.view
    document = {
        "cluster": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
        "epoch": view.epoch,
        "isolation": view.isolation or None,
        "complete": whole or is_complete(membership),
        "rows": [
            {
                "job": row.job,
                "tasks": [row.start, row.stop],
                "filters": None if row.filters is None else list(row.filters),
                "sees": [_sight_as_json(one) for one in row.sees],
                "hidden": [_sight_as_json(one) for one in row.hidden],
            }
            for row in rows(membership)
        ],
    }
    return json.dumps(document, indent=2)


def as_text(membership: Membership, *, whole: bool = False) -> str:
    """Describe who sees whom, for people.

    Args:
        membership: the cluster.
        whole: whether the view is known to show the whole cluster, whatever the own task's filters are.
    """
    view = membership.view
    isolation = f", isolation {view.isolation}" if view.isolation else ""
    lines = [f"{view.namespace}/{view.name}, epoch {view.epoch}{isolation}: each task sees itself, and"]
    for row in rows(membership):
        tasks = _spell(row.job, row.start, row.stop)
        if row.filters == ():
            lines.append(f"{tasks} sees every task: no device filters")
            continue
        known = row.filters is not None
        lines.append(f"{tasks} sees" if known else f"{tasks} sees, by device filters that its view does not hold")
        width = max((len(_spell(one.job, one.start, one.stop)) for one in row.sees), default=0)
        for one in row.sees:
            by = f"  by {', '.join(one.by)}" if one.by else ""
            only = f"  ({', '.join(one.devices)} alone)" if one.devices else ""
            lines.append(f"  {_spell(one.job, one.start, one.stop):{width}}{by}{only}".rstrip())
        lines += ["  no other task"] * (not row.sees)
        for blocked, why in ((False, "hidden by filter"), (True, "hidden by filter, blocked by policy")):
            if some := [_spell(one.job, one.start, one.stop) for one in row.hidden if one.blocked == blocked]:
                lines.append(f"  not {', '.join(some)}" + (f"  ({why})" if view.isolation else ""))
    return "\n".join([*lines, *([] if whole or is_complete(membership) else [_INCOMPLETE])])


def _sight_as_json(sight: Sight) -> dict[str, Any]:
    told: dict[str, Any] = {"job": sight.job, "tasks": [sight.start, sight.stop]}
    if sight.by:
        told["by"] = list(sight.by)
    if sight.devices:
        told["devices"] = list(sight.devices)
    if sight.blocked:
        told["blocked"] = True
    return told


def _spell(job: str, start: int, stop: int) -> str:
    return f"/job:{job}/task:{start}" if stop == start + 1 else f"/job:{job}/task:{start}-{stop - 1}"


def _run(options: argparse.Namespace) -> int:
    membership, _ = read(options.directory)
    say(as_json(membership) if options.json else as_text(membership))
    return exit_codes.DONE


MATRIX: Final = Command(
    brief="print which task sees which, and by which device filter",
    description="Print for each task which others it sees, and the device filters that show them. It tells what this "
    "task's view holds: ask a task without device filters to see all.",
    codes=exit_codes.READING,
    add_options=add_json,
    run=_run,
)
