"""How commands print: data to stdout, talk to stderr, colours only for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from tfcluster.manifest.yaml import write
from tfcluster.terminal import printable

if TYPE_CHECKING:  # rich takes a tenth of a second that data does not need
    from rich.console import Console
    from rich.text import Text

STYLES: Final = {"good": "green", "waiting": "yellow", "bad": "bold red", "off": "dim", "name": "bold", "plain": ""}


def console(*, err: bool = False) -> Console:
    """Return the console of this process: colours only on a terminal, and no wrapping in a pipe."""
    from rich.console import Console

    class Printer(Console):
        def on_broken_pipe(self) -> None:  # the command handles a closed pipe, as with every other print
            raise BrokenPipeError

    return Printer(stderr=err, highlight=False, soft_wrap=True, markup=False, emoji=False)


def data(document: Any, kind: str) -> None:
    if kind == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        click.echo(write(document), nl=False)


def each(documents: Iterable[Any], kind: str) -> None:
    """Print documents as they come: JSON one a line, YAML each after a separator."""
    for document in documents:
        if kind == "json":
            click.echo(json.dumps(document, ensure_ascii=False))
        else:
            click.echo("---")
            data(document, kind)


def say(words: str) -> None:
    """Print a message to standard error; control characters are removed, because the text can quote other users."""
    click.echo(printable(words), err=True)


def styled(words: str, style: str = "plain") -> Text:
    from rich.text import Text

    return Text(words, style=STYLES[style])


def width() -> int | None:
    """Return the width of the terminal in cells; None in a pipe, whose lines can have any length."""
    return console().width if is_terminal() else None


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
