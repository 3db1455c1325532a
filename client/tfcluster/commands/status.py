"""``tfcluster status``: one cluster as a tree, all of them as a table."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, NamedTuple

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from tfcluster.client import Client
from tfcluster.commands import output as printing
from tfcluster.commands.options import ClusterName, Format, examples, place
from tfcluster.commands.options import output as output_option
from tfcluster.status import load
from tfcluster.status.picture import Picture, TaskPicture
from tfcluster.status.text import UNFOLDED, draw, draw_list
from tfcluster_operator.declaration.ledger import timestamp


@click.command()
@click.argument("name", required=False, type=ClusterName())
@place
@click.option("-A", "--all-namespaces", is_flag=True, help="List the clusters of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Show it again at each change.")
@click.option("--all-tasks", is_flag=True, help="Show each task, also if many neighbours are alike.")
@output_option("table", "json", "yaml")
@examples("""
    $ tfcluster status
    $ tfcluster status digits
    $ tfcluster status digits -o json
    tfcluster status digits --watch
    tfcluster status digits -o json | jq -r '.tasks[] | select(.state != "Ready") | .name'
""")
def status_command(
    *, client: Client, name: str | None, all_namespaces: bool, watch: bool, all_tasks: bool, output: Format
) -> None:
    """Show a cluster with its tasks, or all clusters.

    A task is shown with its state, pod, node, restarts, devices, whether its newest view was delivered, and the cause
    if it is not ready. In a large cluster, neighbouring tasks that are alike share a line. The reasons are explained
    in docs/reference/conditions.md.

    With -o json or yaml, one cluster has the keys metadata, state, reason, message, status (as in the API), notices,
    gaps and tasks; each task has its name, state, message, podName, nodeName, devices and view. A list has the key
    items. With --watch there is one JSON document a line.

    The exit code is 0, and 1 if the cluster does not exist.
    """
    if name is not None and all_namespaces:
        raise click.UsageError("leave out NAME or -A: a name is looked for in one namespace")
    namespace = "" if all_namespaces else None
    if watch:
        # On a terminal it is drawn again once a second, without a request, so that ages grow.
        tick = 1.0 if printing.is_terminal() else None
        seen: Iterator[_Shown]
        if name is None:
            seen = (_of_all(*one, namespace) for one in load.watch_all(client.api, namespace, tick=tick))
        else:
            seen = _watched(client, name, all_tasks, tick)
        _follow(seen, output)
        return
    if name is not None:
        shown = _of_one(load.look(client.api, name)[1], all_tasks)
    else:
        pictures = load.pictures_of(client.list(namespace))
        shown = _of_all(pictures, "", namespace)
        if not pictures and output == "table":
            where = f"in namespace {client.namespace}" if namespace is None else "in any namespace"
            printing.say(f"No TFCluster found {where}. Create one with `tfcluster create`.")
            return
    if output != "table":
        printing.data(shown.document, output)
    for line in shown.lines if output == "table" else ():
        printing.console().print(line)


class _Shown(NamedTuple):
    """One reading, in each output format."""

    document: Any
    lines: list[Text]


# The documents of -o json and yaml: their keys are stable, new ones can be added.


def _document(picture: Picture) -> dict[str, Any]:
    return {
        **_row(picture),
        "notices": list(picture.standing.notices),
        "gaps": list(picture.gaps),
        "tasks": [_task(task) for task in picture.tasks()],
    }


def _row(picture: Picture) -> dict[str, Any]:
    """Return a cluster as an item of the list; ``status`` is that of the API."""
    return {
        "metadata": {
            "name": picture.name,
            "namespace": picture.namespace,
            "generation": picture.generation,
            "creationTimestamp": _time(picture.created),
        },
        "state": picture.standing.state,
        "reason": picture.standing.reason,
        "message": picture.standing.message,
        "status": {key: value for key, value in picture.status.items() if key != "internal"},
    }


def _task(task: TaskPicture) -> dict[str, Any]:
    return {
        "name": task.name,
        "job": task.job,
        "index": task.index,
        "state": task.state,
        "message": task.cause,
        "podName": task.pod or None,
        "nodeName": task.node or None,
        "phase": task.phase or None,
        "creationTimestamp": _time(task.since),
        "restarts": task.restarts,
        "devices": {name: asdict(one) for name, one in sorted(task.devices.items())},
        "view": task.view or None,
        "outdated": task.outdated,
        "keptPods": list(task.kept),
        "nextRetryTime": _time(task.next_try),
    }


def _time(seconds: float) -> str | None:
    return timestamp(seconds) if seconds else None


def _of_one(picture: Picture, all_tasks: bool) -> _Shown:
    lines = draw(picture, printing.width(), now=time.time(), fold=10**9 if all_tasks else UNFOLDED)
    return _Shown(_document(picture), lines)


def _of_all(pictures: Sequence[Picture], trouble: str, namespace: str | None) -> _Shown:
    lines = draw_list(pictures, printing.width(), now=time.time(), namespaces=namespace == "")
    lines += [printing.styled(trouble, "waiting")] if trouble else []
    return _Shown({"items": [_row(one) for one in pictures]}, lines)


def _watched(client: Client, name: str, all_tasks: bool, tick: float | None) -> Iterator[_Shown]:
    for picture in load.watch(client.api, name, tick=tick):
        if picture is None:
            printing.say(f"TFCluster {name} was deleted.")
            return
        yield _of_one(picture, all_tasks)


def _follow(seen: Iterator[_Shown], kind: Format) -> None:
    if kind != "table":
        printing.each((document for document, _ in groupby(shown.document for shown in seen)), kind)
    elif printing.is_terminal():
        # Lines are cut to the width already; a console with soft wrapping would miscount them.
        screen = printing.console()
        screen.soft_wrap = False
        with Live(console=screen, auto_refresh=False, vertical_overflow="ellipsis") as live:
            for shown in seen:
                live.update(Group(*shown.lines), refresh=True)
    else:
        for shown in seen:
            for line in shown.lines:
                printing.console().print(line)
            click.echo()
