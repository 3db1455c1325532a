"""``tfcluster events``: what happened to a TFCluster and its pods."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from tfcluster.client import Client
from tfcluster.commands import names
from tfcluster.commands import output as printing
from tfcluster.commands.options import Format, examples, place
from tfcluster.commands.options import output as output_option

if TYPE_CHECKING:
    from tfcluster.event_log import Event


@click.command()
@click.argument("name", type=names.ClusterName())
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the cluster is gone.")
@click.option("--warnings", is_flag=True, help="Only what somebody should look at.")
@place
@output_option("table", "json", "yaml")
@examples("""
    $ tfcluster events digits
    $ tfcluster events digits --warnings
    $ tfcluster events digits --follow
    $ tfcluster events digits -o json
""")
def command(*, client: Client, name: str, follow: bool, warnings: bool, output: Format) -> None:
    """Print what happened to a cluster and its pods, the oldest first.

    Each line has the time of its last occurrence, how often it occurred if more than once, and the task that it is
    about. What the reasons of the operator mean, and what to do, is in docs/conditions.md. Kubernetes keeps events for
    an hour, also those of a cluster that is gone.

    With --follow, json and yaml give one document for each event.
    """
    found = client.events(name, follow=follow)
    chosen = (one for one in found if not warnings or one.type != "Normal")
    if output != "table":
        _data(chosen, output, follow=follow)
        return
    number = _print(chosen)
    if not number:
        words = "no warning" if warnings else "no event"
        printing.say(
            f"There is {words} of {name}: Kubernetes keeps events for an hour. Its state: tfcluster status {name}."
        )


def _print(events: Iterable[Event]) -> int:
    console, number = printing.console(), 0
    for one in events:
        number += 1
        times = f" (×{one.count})" if one.count > 1 else ""  # noqa: RUF001 - the sign of multiplication
        warns = one.type != "Normal"
        console.print(
            Text.assemble(
                (_time(one.time), "dim"),
                "  ",
                (f"{one.about or 'cluster':<12}", "bold"),
                "  ",
                (f"{one.reason}{times}", "yellow" if warns else ""),
                "  ",
                one.message,
            )
        )
    return number


def _data(events: Iterable[Event], kind: Format, *, follow: bool) -> None:
    if not follow:
        printing.data([_document(one) for one in events], kind)
        return
    for one in events:
        if kind == "json":
            click.echo(json.dumps(_document(one), ensure_ascii=False))
        else:
            click.echo("---")
            printing.data(_document(one), kind)


def _document(event: Event) -> dict[str, Any]:
    fields = dataclasses.asdict(event)
    del fields["uid"]
    return {**fields, "time": _time(event.time)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
