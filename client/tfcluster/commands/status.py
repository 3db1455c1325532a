"""``tfcluster status``: one cluster as a tree, all of them as a table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfcluster.client import Client
from tfcluster.commands import output
from tfcluster.commands.names import ClusterName
from tfcluster.commands.options import Format, examples, place
from tfcluster.commands.options import output as output_option

if TYPE_CHECKING:
    from rich.text import Text

    from tfcluster.picture import Picture
    from tfcluster.text_columns import Paper


@click.command()
@click.argument("name", required=False, type=ClusterName())
@place
@click.option("-A", "--all-namespaces", is_flag=True, help="The clusters of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Go on: draw again at each change; on a pipe, print each change.")
@click.option("--all-tasks", is_flag=True, help="Show each task, also where many neighbours are alike.")
@output_option("table", "json", "yaml")
@examples("""
    $ tfcluster status
    $ tfcluster status digits
    $ tfcluster status digits -o json
    tfcluster status digits --watch
    tfcluster status digits -o json | jq -r '.jobs[].tasks[] | select(.state != "Ready") | .name'
""")
def command(
    *, client: Client, name: str | None, all_namespaces: bool, watch: bool, all_tasks: bool, output: Format
) -> None:
    """Show a cluster with its tasks, or all clusters.

    A task is shown with its state, pod, node, restarts, devices, whether its newest view was delivered, and the cause
    if it is not ready. In a large cluster, neighbouring tasks that are alike share a line. What each reason means is
    in docs/conditions.md.

    With -o json or yaml, one cluster has the keys name, namespace, state, reason, message, notices, ready, restarts,
    backoffLimit, epoch, generation, isolation, accelerators, queue, created, started, finished, waitingSince, deadline,
    deletedAt, lastRestart, gaps and jobs; jobs have tasks, each with its state, cause, pod, node, devices and view.
    With --watch there is one JSON document a line.

    The exit code is 0, and 1 if there is no cluster of that name.
    """
    if name is not None and all_namespaces:
        raise click.UsageError("leave out NAME or -A: a name is looked for in one namespace")
    namespace = "" if all_namespaces else None
    if watch:
        seen = _watched_all(client, namespace) if name is None else _watched(client, name, all_tasks=all_tasks)
        _follow(seen, output)
    elif name is None:
        _show_all(client, namespace, output)
    else:
        _show(client, name, output, all_tasks=all_tasks)


def _show(client: Client, name: str, kind: Format, *, all_tasks: bool) -> None:
    from tfcluster import looking
    from tfcluster.status_document import document_of

    picture = looking.look(client, name)
    if kind != "table":
        output.data(document_of(picture), kind)
        return
    _print(_drawing(picture, _paper(), all_tasks=all_tasks))


def _show_all(client: Client, namespace: str | None, kind: Format) -> None:
    from tfcluster import looking
    from tfcluster.status_document import list_of

    pictures = looking.look_at_all(client, namespace)
    if kind != "table":
        output.data(list_of(pictures), kind)
    elif pictures:
        _print(_table(pictures, namespace))
    else:
        where = f"in namespace {client.namespace}" if namespace is None else "in any namespace"
        output.say(f"There is no TFCluster {where}. Make one with `tfcluster create`.")


class _Sight:
    """One look during a watch, in each of the ways in which it can be shown."""

    def __init__(self, document: Any, lines: Iterable[Text], news: Iterable[str]) -> None:
        self.document = document
        self.lines = lines
        self.news = news


def _watched(client: Client, name: str, *, all_tasks: bool) -> Iterator[_Sight]:
    from tfcluster import looking
    from tfcluster.status_changes import changes
    from tfcluster.status_document import document_of

    before: Picture | None = None
    for picture in looking.watch(client, name, tick=_tick()):
        if picture is None:
            output.say(f"TFCluster {name} is gone.")
            return
        yield _Sight(
            document_of(picture), _drawing(picture, _paper(), all_tasks=all_tasks), list(changes(before, picture))
        )
        before = picture


def _watched_all(client: Client, namespace: str | None) -> Iterator[_Sight]:
    from tfcluster import looking
    from tfcluster.status_changes import changes_of_list
    from tfcluster.status_document import list_of

    before: dict[str, Picture] = {}
    for pictures, trouble in looking.watch_all(client, namespace, tick=_tick()):
        after = {f"{one.namespace}/{one.name}": one for one in pictures}
        lines = _table(pictures, namespace)
        yield _Sight(
            list_of(pictures),
            [*lines, *([output.styled(trouble, "waiting")] if trouble else [])],
            list(changes_of_list(before, after)),
        )
        before = after


def _tick() -> float | None:
    """Let ages grow on a terminal: once a second, without a request."""
    return 1.0 if output.is_terminal() else None


def _follow(seen: Iterator[_Sight], kind: Format) -> None:
    if kind != "table":
        last: Any = None
        for sight in seen:
            if sight.document != last:
                last = sight.document
                click.echo(json.dumps(last, ensure_ascii=False) if kind == "json" else _yaml(last))
    elif output.is_terminal():
        _live(seen)
    else:
        for sight in seen:
            for line in sight.news:
                click.echo(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}")


def _live(seen: Iterator[_Sight]) -> None:
    from rich.console import Group
    from rich.live import Live

    # NB: lines have the width already; a console that wraps softly would count them wrongly.
    screen = output.console()
    screen.soft_wrap = False
    with Live(console=screen, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for sight in seen:
            live.update(Group(*sight.lines), refresh=True)


def _yaml(document: Any) -> str:
    from tfcluster import yaml_writing

    return f"---\n{yaml_writing.write(document)}".rstrip()


def _paper() -> Paper:
    from tfcluster.text_columns import Paper

    console = output.console()
    return Paper(console.width if output.is_terminal() else None, fancy=console.encoding.startswith("utf"))


def _drawing(picture: Picture, paper: Paper, *, all_tasks: bool) -> list[Text]:
    from tfcluster.status_text import UNFOLDED, draw

    return draw(picture, paper, now=time.time(), fold=10**9 if all_tasks else UNFOLDED)


def _table(pictures: Sequence[Picture], namespace: str | None) -> list[Text]:
    from tfcluster.status_text import draw_list

    return draw_list(pictures, _paper(), now=time.time(), namespaces=namespace == "")


def _print(lines: Iterable[Text]) -> None:
    console = output.console()
    for line in lines:
        console.print(line)
