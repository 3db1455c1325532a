"""``tfcluster completion``: what a shell needs to complete command lines."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

from tfcluster.commands.options import examples

_HOW = {
    "bash": "source <(tfcluster completion bash)",
    "zsh": "source <(tfcluster completion zsh)",
    "fish": "tfcluster completion fish | source",
}


def candidates(words: Sequence[str]) -> tuple[list[str], bool]:
    """Complete a command line.

    Args:
        words: the words after the program's name; the last is the one to complete, and may be empty.

    Returns:
        What it may become, and whether it may be the name of a file, too.
    """
    from tfcluster.commands.root import root

    *before, last = words or [""]
    completing = ShellComplete(root, {}, "tfcluster", "_TFCLUSTER_COMPLETE")
    found = completing.get_completions(list(before), last)
    return [one.value for one in found if one.type == "plain"], any(one.type in {"file", "dir"} for one in found)


@click.command()
@click.argument("shell", type=click.Choice(list(_HOW)))
@examples("""
    $ tfcluster completion bash
    source <(tfcluster completion bash)      # in ~/.bashrc
""")
def command(shell: str) -> None:
    """Print what completes command lines in a shell.

    kubectl completes the plug-in by itself where `kubectl_complete-tfcluster` is on the PATH.
    """
    from tfcluster.commands.root import root

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(root, {}, "tfcluster", "_TFCLUSTER_COMPLETE").source())
