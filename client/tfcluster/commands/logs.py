"""``tfcluster logs``, ``events`` and ``wait``: what tasks say, what happened, and what is to come."""

import dataclasses
import math
import sys
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from tfcluster.client import Client
from tfcluster.commands import output as printing
from tfcluster.commands.change import patience, waiting
from tfcluster.commands.options import ClusterName, Format, TaskName, examples, place, seconds
from tfcluster.commands.options import output as output_option
from tfcluster.events import Event
from tfcluster.logs.reader import LogLine
from tfcluster.logs.stream import MOST_FOLLOWED, LogRequest, log_batches
from tfcluster.tasks import names_one, spell
from tfcluster.terminal import wants_colour
from tfcluster.wait import GOALS

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_magenta")


@click.command()
@click.argument("name", type=ClusterName())
@click.argument("tasks", nargs=-1, metavar="[JOB[-INDEX]]...", type=TaskName(jobs=True))
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until the cluster has finished.")
@click.option("-p", "--previous", is_flag=True, help="Print the logs of kept failed pods, and of earlier containers.")
@click.option("--since", "since_seconds", type=seconds, help="Only lines newer than this, such as 30s, 5m or 1h.")
@click.option("--tail", type=click.IntRange(min=0), help="The number of lines from the end of each log.")
@click.option("-c", "--container", default="", help="The container.  [default: the one that runs the task]")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time, by the node's clock.")
@click.option(
    "--prefix/--no-prefix", default=None, help="Begin each line with its task.  [default: unless one task is named]"
)
@click.option(
    "--max-log-requests",
    "limit",
    type=click.IntRange(min=1),
    default=MOST_FOLLOWED,
    show_default=True,
    help="The largest number of tasks whose logs -f begins to follow.",
)
@place
@examples("""
    $ tfcluster logs digits                       # all tasks, one after the other
    $ tfcluster logs digits worker-0 --tail 20
    $ tfcluster logs digits worker --previous     # why did they fail?
    $ tfcluster logs digits -f --since 1m         # ends when digits has finished
""")
def logs_command(
    client: Client, name: str, *, timestamps: bool, prefix: bool | None, since_seconds: float | None, **wanted: Any
) -> None:
    """Print the logs of tasks, many tasks in one stream.

    A task is JOB-INDEX, such as worker-0; JOB alone means all its tasks; without any it is the whole cluster. If
    a pod is replaced, the log continues with the next pod; a line on stderr says why. The exit code is 1 if the cluster
    or task does not exist, or if a log could not be read.
    """
    request = LogRequest(**wanted, since_seconds=math.ceil(since_seconds or 0) or None)
    if request.follow and request.previous:
        raise click.UsageError("--previous reads what has ended: leave out -f")
    if prefix is None:
        prefix = not (len(request.tasks) == 1 and names_one(request.tasks[0]))
    printed = _Printed(prefix, timestamps, wants_colour(sys.stdout))
    stream = sys.stdout.buffer
    for batch in log_batches(client.api, name, None, request, printing.say):
        stream.write(b"".join(map(printed.line, batch)))
        stream.flush()


@dataclasses.dataclass(slots=True)
class _Printed:
    """How lines are printed."""

    prefix: bool
    timestamps: bool
    coloured: bool
    width: int = 0

    def line(self, line: LogLine) -> bytes:
        start = self._start(line) if self.prefix else ""
        if self.timestamps and line.timestamp:
            start += f"{line.timestamp} "
        text = line.text.removesuffix("\r")
        if start and self.coloured:
            # A progress bar returns to the beginning of its line and would overwrite the name of the task.
            text = text.replace("\r", f"\r{start}")
        return f"{start}{text}\n".encode("utf-8", "replace")

    def _start(self, line: LogLine) -> str:
        task = spell(line.job, line.index)
        if not self.coloured:
            return f"{task} | "
        # A task has the same colour in every run, and tasks with neighbouring indices have different colours.
        colour = _COLOURS[(zlib.crc32(line.job.encode()) + line.index) % len(_COLOURS)]
        self.width = max(self.width, len(task))
        return click.style(f"{task:<{self.width}} │ ", fg=colour)


@click.command()
@click.argument("name", type=ClusterName())
@click.option("-f", "--follow", is_flag=True, help="Follow new events until the cluster is deleted.")
@click.option("--warnings", is_flag=True, help="Only warnings.")
@place
@output_option("table", "json", "yaml")
@examples("""
    $ tfcluster events digits
    $ tfcluster events digits --warnings
    $ tfcluster events digits --follow
    $ tfcluster events digits -o json
""")
def events_command(*, client: Client, name: str, follow: bool, warnings: bool, output: Format) -> None:
    """Print the events of a cluster and its pods, the oldest first.

    Each line has the time of the last occurrence, the number of occurrences if more than one, and the task. See
    docs/reference/conditions.md for the operator's reasons. Kubernetes keeps events for an hour, also those of a
    deleted cluster.

    With --follow, json and yaml give one document for each event.
    """
    found = client.events(name, follow=follow)
    chosen = (one for one in found if not warnings or one.type != "Normal")
    if output != "table":
        documents = map(_document, chosen)
        printing.each(documents, output) if follow else printing.data([*documents], output)
    elif not _print(chosen):
        words = "no warning" if warnings else "no event"
        printing.say(
            f"There is {words} of {name}: Kubernetes keeps events for an hour. Its state: tfcluster status {name}."
        )


def _print(events: Iterable[Event]) -> int:
    console, number = printing.console(), 0
    for one in events:
        number += 1
        times = f" (×{one.count})" if one.count > 1 else ""  # noqa: RUF001 - the sign of multiplication
        style = "yellow" if one.type != "Normal" else ""
        line = Text.assemble((_time(one.time), "dim"), "  ", (f"{one.about or 'cluster':<12}", "bold"), "  ")
        console.print(line.append(f"{one.reason}{times}", style).append(f"  {one.message}"))
    return number


def _document(event: Event) -> dict[str, Any]:
    fields = dataclasses.asdict(event)
    del fields["uid"]
    return {**fields, "time": _time(event.time)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@click.command()
@click.argument("name", type=ClusterName())
@click.option(
    "--for", "goal", type=click.Choice(GOALS), default="ready", show_default=True, metavar="GOAL", help="The goal."
)
@patience
@place
@examples("""
    $ tfcluster wait digits
    $ tfcluster wait digits --for finished --timeout 24h
    $ tfcluster wait digits --for resized
""")
def wait_command(client: Client, name: str, goal: str, timeout: float) -> None:
    """Wait until a TFCluster reaches a goal.

    GOAL is ready, succeeded, failed, finished (either of the two), suspended (its pods are deleted), resized (every
    task is ready and knows the others), updated (every pod is ready and has the newest template) or deleted; `kubectl
    wait` waits for any condition. The exit code is 1 if the goal can no longer be reached, and 124 after the time-out.
    """
    client.wait(name, goal, timeout=timeout or None, tell=waiting)
    printing.say(f"{name} is {'gone' if goal == 'deleted' else goal}")
