"""What a command of ``python -m tfcluster_resolver`` is, and how its words are read.

It decides what every command has in common: the form of its ``--help``, the options that more than one has, and how it
says its exit codes.  What a command does, and which words are its own, is in its module.
"""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tfcluster_resolver import __version__, contract
from tfcluster_resolver.commands import exit_codes
from tfcluster_resolver.commands.reading import view_directory

_PROGRAM: Final = "python -m tfcluster_resolver"
#: Columns of the descriptions: exit codes keep their lines, so argparse wraps nothing.
_WIDTH: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: its words and its deed.

    Attributes:
        brief: what the list of commands says of it.
        description: what its own ``--help`` says first.
        run: does it with the words that were read, and gives the exit code.
        codes: the exit codes that it may end with, besides success and wrong arguments.
        success: what exit code 0 means.
        add_options: declares the options that it has besides ``--directory``.
        runs_program: whether it becomes the program that its words name after ``--``.
    """

    brief: str
    description: str
    run: Callable[[argparse.Namespace], int]
    codes: tuple[int, ...] = ()
    success: str = "done"
    add_options: Callable[[argparse.ArgumentParser], None] | None = None
    runs_program: bool = False


def parse(words: Sequence[str], commands: Mapping[str, Command]) -> argparse.Namespace:
    """Read the command line.

    Returns:
        ``command`` (its name), ``directory``, ``program`` (the words after ``--``), and what else the command takes.

    Raises:
        SystemExit: the words are wrong, with exit code 2, or ask for help.
    """
    own, dashes, program = _cut(list(words))
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="A TensorFlow cluster on Kubernetes, as one of its tasks sees it.",
        epilog="COMMAND --help lists the command's exit codes.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    listed = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in commands.items():
        _describe(
            command,
            listed.add_parser(
                name,
                help=command.brief,
                description=textwrap.fill(command.description, _WIDTH),
                usage=f"{_PROGRAM} {name} [-h] [--directory DIRECTORY] -- PROGRAM [ARGUMENT ...]"
                if command.runs_program
                else None,
                epilog=explain_codes(command),
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            ),
        )
    options = parser.parse_args(own)
    options.program = program
    runs_program = commands[options.command].runs_program
    if runs_program and not program:
        parser.error(f"{options.command}: the program is missing: {options.command} -- PROGRAM [ARGUMENT ...]")
    if dashes and not runs_program:
        parser.error(f"{options.command} runs no program, so it takes no --")
    return options


def explain_codes(command: Command) -> str:
    """Spell a command's exit codes for its ``--help``."""
    meanings = {exit_codes.USAGE: "wrong arguments"} | {code: exit_codes.MEANINGS[code] for code in command.codes}
    if not command.runs_program:
        meanings[exit_codes.DONE] = command.success
    lines = [(str(code), meanings[code]) for code in sorted(meanings)]
    if command.runs_program:
        lines.append(("any", "that of the program, which takes this one's place"))
    else:
        lines.append((f"{exit_codes.SIGNAL}+n", f"ended by signal n ({exit_codes.SIGNAL + 15} for SIGTERM)"))
    return "exit codes:\n" + "\n".join(f"  {code:<7}{meaning}" for code, meaning in lines)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``, for what prints."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def add_timeout(parser: argparse.ArgumentParser, default: float, meaning: str) -> None:
    """Declare ``--timeout``, for what waits."""
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=default,
        metavar="SECONDS",
        help=f"{meaning}, in seconds (default: {default:g})",
    )


def say(text: str) -> None:
    """Print a command's output."""
    print(text, flush=True)  # noqa: T201 - the command's output


def _cut(words: list[str]) -> tuple[list[str], bool, list[str]]:
    """Take the program that is to be run off the words."""
    if "--" not in words:
        return words, False, []
    cut = words.index("--")
    return words[:cut], True, words[cut + 1 :]


def _describe(command: Command, parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory",
        default=view_directory(),
        help=f"where the view is mounted (default: ${contract.ENV_DIRECTORY}, or {contract.DEFAULT_DIRECTORY})",
    )
    if command.add_options is not None:
        command.add_options(parser)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
