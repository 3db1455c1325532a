"""How commands print: data to stdout, talk to stderr, colours only for people."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from tfcluster.errors import TFClusterError
from tfcluster.manifest.yaml import write
from tfcluster.terminal import printable

STYLES: Final = {
    "good": "green",
    "waiting": "yellow",
    "bad": "bold red",
    "off": "dim",
    "name": "bold",
    "plain": "",
}


class _Console(Console):
    """A console that leaves a reader who went away to the command, as every other print does."""

    def on_broken_pipe(self) -> None:
        """Tell that nobody reads any more, as in ``tfcluster status | head``."""
        raise BrokenPipeError


def console(*, err: bool = False) -> Console:
    """Give the console of this process: it has colours only on a terminal, and wraps nothing that is piped."""
    return _Console(stderr=err, highlight=False, soft_wrap=True, markup=False, emoji=False)


def data(document: Any, kind: str) -> None:
    if kind == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        click.echo(write(document), nl=False)


def write_file(path: Path, text: str) -> None:
    """Write a file, and the folders around it; raises TFClusterError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TFClusterError(f"{path} cannot be written: {error.strerror or error}") from error


def say(words: str) -> None:
    """Tell the user something that is no data; what others wrote in it steers no terminal."""
    click.echo(printable(words), err=True)


def styled(words: str, style: str) -> Text:
    return Text(words, style=STYLES[style])


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
