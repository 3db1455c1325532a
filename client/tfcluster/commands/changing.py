"""What the commands that change TFClusters share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from tfcluster.client import Client
from tfcluster.commands import output
from tfcluster.commands.options import Format, seconds

_Function = TypeVar("_Function", bound=Callable[..., Any])


def dry(function: _Function) -> _Function:
    """Add ``--dry-run``; the command gets ``dry_run``."""
    return click.option("--dry-run", is_flag=True, help="Change nothing; say what would happen.")(function)


def patience(function: _Function) -> _Function:
    """Add ``--timeout``; the command gets ``timeout`` in seconds, 0 for ever."""
    return click.option(
        "--timeout",
        type=seconds,
        default="10m",
        show_default=True,
        help="How long to wait at the most; 0 means for ever.",
    )(function)


def waiting(words: str) -> None:
    """Tell what is waited for."""
    output.say(f"waiting: {words}")


def done(words: str, body: Any, kind: Format, *, dry_run: bool) -> None:
    """Print what was done, or the object after it.

    Args:
        words: what was done.
        body: the object.
        kind: "table" prints the words.
        dry_run: whether nothing was changed.
    """
    if kind == "table":
        click.echo(f"{words} (dry run: nothing was changed)" if dry_run else words)
    else:
        output.data(body, kind)


def each(
    client: Client,
    clusters: Sequence[str],
    change: Callable[..., Any],
    past: str,
    kind: Format,
    *,
    dry_run: bool,
    goal: str,
    timeout: float,
) -> None:
    """Change several TFClusters, and wait for them.

    Args:
        client: the client.
        clusters: their names.
        change: a method of it that takes a name, ``dry_run`` and ``tell``.
        past: what was done, in a word.
        kind: how to print.
        dry_run: change nothing.
        goal: what to wait for; "" for nothing.
        timeout: how long for each, in seconds; 0 for ever.
    """
    for name in clusters:
        before = f"{name}: " if len(clusters) > 1 else ""
        was = client.get(name)
        body = change(name, dry_run=dry_run, tell=_after(before, output.say))
        done(f"{name} {past if body['spec'] != was['spec'] else 'unchanged'}", body, kind, dry_run=dry_run)
    for name in clusters if goal else ():
        client.wait(name, goal, timeout=timeout or None, tell=_after(f"{name}: ", waiting))


def _after(before: str, tell: Callable[[str], None]) -> Callable[[str], None]:
    return lambda words: tell(before + words)
