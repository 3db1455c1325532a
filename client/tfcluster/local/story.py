"""What ``tfcluster local run`` tells: the logs of all tasks in one stream, and what happens between the lines."""

from __future__ import annotations

import sys
from typing import Final

import click

from memory_kubernetes import Change
from tfcluster_operator.model import reasons

#: The colours of prefixes, in turn.
_COLOURS: Final = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow", "bright_green")
#: Events that say nothing which the lines do not.
_SILENT: Final = (reasons.CREATED,)


class Story:
    """Tells.

    Args:
        clusters: the names of the TFClusters; the only one is left out of its tasks' names.
        quiet: leave the logs out.
    """

    def __init__(self, clusters: list[str], *, quiet: bool = False) -> None:
        self._strip = f"{clusters[0]}-" if len(clusters) == 1 else ""
        self._quiet = quiet
        self._colours: dict[str, str] = {}
        self._width = 0
        self._said: set[str] = set()
        self._silent = False

    def task(self, pod: str) -> str:
        """Give a pod's short name."""
        return pod.removeprefix(self._strip)

    def line(self, pod: str, container: str, text: bytes) -> None:
        """Tell a line of a log.

        Args:
            pod: the pod's name.
            container: the container's name, "" where the pod has no other.
            text: the line.
        """
        if self._quiet or self._silent:
            return
        who = self.task(pod) + (f"/{container}" if container else "")
        self._width = max(self._width, len(who))
        colour = self._colours.setdefault(who, _COLOURS[len(self._colours) % len(_COLOURS)])
        prefix = f"{who.ljust(self._width)} | "
        if sys.stdout.isatty():
            prefix = click.style(prefix, fg=colour)
        click.echo(prefix + text.decode("utf-8", "replace"))

    def say(self, words: str, *, colour: str | None = None) -> None:
        """Tell something that is no line of a log."""
        if not self._silent:
            click.secho(f"* {words}", err=True, fg=colour if sys.stderr.isatty() else None)

    def once(self, words: str) -> None:
        """Tell something that may come up often, once."""
        if words not in self._said:
            self._said.add(words)
            self.say(words, colour="yellow")

    def end(self) -> None:
        """Tell no more: what is left is the end of everything."""
        self._silent = True

    def change(self, change: Change) -> None:
        """Tell of a change in the API server, where it is worth a line."""
        body = change.object
        if change.resource == "events" and change.type == "ADDED" and body["reason"] not in _SILENT:
            self.say(f"{body['reason']}: {body['message']}", colour="yellow" if body["type"] == "Warning" else None)
