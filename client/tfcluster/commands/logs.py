"""``tfcluster logs``: what the tasks say, in one stream."""

from __future__ import annotations

import math
import sys
import zlib

import click

from tfcluster import colours
from tfcluster.client import Client
from tfcluster.commands import output
from tfcluster.commands.names import ClusterName, TaskName
from tfcluster.commands.options import examples, place, seconds
from tfcluster.log_batches import log_batches
from tfcluster.log_lines import LogLine
from tfcluster.log_stream import MOST_FOLLOWED, LogRequest
from tfcluster.task_names import names_one, spell

#: Colours that can be told apart on dark and on light ground.
_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_magenta")


@click.command()
@click.argument("name", type=ClusterName())
@click.argument("tasks", nargs=-1, metavar="[JOB[-INDEX]]...", type=TaskName(jobs=True))
@click.option("-f", "--follow", is_flag=True, help="Go on until the cluster has finished.")
@click.option("-p", "--previous", is_flag=True, help="The failed pods that are kept, and earlier containers of pods.")
@click.option("--since", type=seconds, help="Only lines that are younger, such as 30s, 5m or 1h.")
@click.option("--tail", type=click.IntRange(min=0), help="Only so many lines from the end of each log.")
@click.option("-c", "--container", default="", help="The container.  [default: the one that runs the task]")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time, by the node's clock.")
@click.option(
    "--prefix/--no-prefix", default=None, help="Begin each line with its task.  [default: unless one task is named]"
)
@click.option(
    "--max-log-requests",
    type=click.IntRange(min=1),
    default=MOST_FOLLOWED,
    show_default=True,
    help="How many logs -f may follow at once.",
)
@place
@examples("""
    $ tfcluster logs digits                       # all tasks, one after the other
    $ tfcluster logs digits worker-0 --tail 20
    $ tfcluster logs digits worker --previous     # why did they fail?
    $ tfcluster logs digits -f --since 1m         # ends when digits has finished
""")
def command(
    client: Client,
    name: str,
    tasks: tuple[str, ...],
    *,
    follow: bool,
    previous: bool,
    since: float | None,
    tail: int | None,
    container: str,
    timestamps: bool,
    prefix: bool | None,
    max_log_requests: int,
) -> None:
    """Print what tasks say, many tasks in one stream.

    A task is JOB-INDEX, such as worker-0; JOB alone means all its tasks; without any it is the whole cluster. A task
    whose pod is replaced goes on in the next pod; a line on stderr says why. Exit code 1: there is no such cluster or
    task, or a log could not be read.
    """
    if follow and previous:
        raise click.UsageError("--previous reads what has ended: leave out -f")
    request = LogRequest(tasks, follow, previous, container, tail, math.ceil(since or 0) or None, max_log_requests)
    if prefix is None:
        prefix = not (len(tasks) == 1 and names_one(tasks[0]))
    coloured = colours.wanted(sys.stdout)
    printed = _Printed(prefix=prefix, timestamps=timestamps, coloured=coloured)
    stream = sys.stdout.buffer
    for batch in log_batches(client.api, name, None, request, output.say):
        stream.write(b"".join(map(printed.line, batch)))
        stream.flush()


class _Printed:
    """How lines are printed."""

    def __init__(self, *, prefix: bool, timestamps: bool, coloured: bool) -> None:
        self._prefix, self._timestamps, self._coloured = prefix, timestamps, coloured
        self._width = 0

    def line(self, line: LogLine) -> bytes:
        """Spell a line, with its end."""
        start = self._start(line) if self._prefix else ""
        if self._timestamps and line.timestamp:
            start += f"{line.timestamp} "
        text = line.text.removesuffix("\r")
        if start and self._coloured:
            # NB: a progress bar goes back to the beginning of its line, and would write over the task.
            text = text.replace("\r", f"\r{start}")
        return f"{start}{text}\n".encode("utf-8", "replace")

    def _start(self, line: LogLine) -> str:
        task = spell(line.job, line.index)
        if not self._coloured:
            return f"{task} | "
        # NB: a task has the same colour in every run, and its neighbours have others.
        colour = _COLOURS[(zlib.crc32(line.job.encode()) + line.index) % len(_COLOURS)]
        self._width = max(self._width, len(task))
        return click.style(f"{task:<{self._width}} │ ", fg=colour)
