"""The words of the command line and what ``--help`` says of them."""

from __future__ import annotations

import argparse
import math
import os
import textwrap
from collections.abc import Sequence
from typing import Final

from tfcluster_resolver import __version__, contract
from tfcluster_resolver.commands import exit_codes

#: Seconds that ``wait`` gives the tasks; pulling a large image takes minutes.
_WAIT: Final = 300.0
#: Seconds that ``doctor`` gives the other tasks to accept a connection.
_DOCTOR: Final = 5.0
#: Columns of the descriptions: exit codes keep their lines, so argparse wraps nothing.
_WIDTH: Final = 80


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    Args:
        arguments: the words after the program's name.

    Returns:
        ``command``, ``directory``, ``program`` (the words after ``--``), and what else the command takes.

    Raises:
        SystemExit: the words are wrong, with exit code 2, or ask for help.
    """
    words = list(arguments)
    cut = words.index("--") if "--" in words else None
    parser = _parser()
    options = parser.parse_args(words[:cut])
    options.program = [] if cut is None else words[cut + 1 :]
    if options.command == "exec" and not options.program:
        parser.error("exec: the program is missing: exec -- PROGRAM [ARGUMENT ...]")
    if options.command != "exec" and cut is not None:
        parser.error(f"{options.command} runs no program, so it takes no --")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tfcluster_resolver",
        description="A TensorFlow cluster on Kubernetes, as one of its tasks sees it.",
        epilog="COMMAND --help lists the command's exit codes.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_showing(commands)
    _add_running(commands)
    return parser


def _add_showing(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shown = _add(
        commands,
        "show",
        "print the cluster that this task sees",
        "Print epoch, tasks and their addresses, the own task, device filters and accelerators. Needs no TensorFlow.",
    )
    matrix = _add(
        commands,
        "matrix",
        "print which task sees which, and by which device filter",
        "Print for each task which others it sees, and the device filters that show them. It tells what this task's "
        "view holds: ask a task without device filters to see all.",
    )
    doctor = _add(
        commands,
        "doctor",
        "check what a task needs, and say what to do",
        "Check the package, the view, the own name and port, the other tasks, the accelerators and TensorFlow: one "
        "line each with a verdict (ok, warning, failed, skipped) and what to do.",
    )
    for one in (shown, matrix, doctor):
        one.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    _add_timeout(doctor, _DOCTOR, "how long the other tasks may take to accept a connection")


def _add_running(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _add(
        commands,
        "exec",
        "run a program that reads TF_CONFIG",
        "Replace this process by PROGRAM, with TF_CONFIG set to the cluster that this task sees now. A running program "
        "does not hear of later changes.",
        usage="python -m tfcluster_resolver exec [-h] [--directory DIRECTORY] -- PROGRAM [ARGUMENT ...]",
    )
    waits = _add(
        commands,
        "wait",
        "wait until the other tasks listen",
        "Wait until every other task that this one sees accepts connections. A resize meanwhile is followed.",
    )
    waits.add_argument(
        "--job", action="append", default=[], metavar="JOB", help="wait for this job alone; may be repeated"
    )
    _add_timeout(waits, _WAIT, "how long to wait for all of them together")
    _add(
        commands,
        "serve",
        "run this task's TensorFlow server until SIGTERM",
        f"Run tf.distribute.Server for this task, on the port of ${contract.ENV_ADDRESS}. The task is ready when "
        "the port accepts connections. SIGTERM ends it at once, also as process 1 of a container.",
    )


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    brief: str,
    description: str,
    *,
    usage: str | None = None,
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=brief,
        description=textwrap.fill(description, _WIDTH),
        usage=usage,
        epilog=exit_codes.explain(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument(
        "--directory",
        default=os.environ.get(contract.ENV_DIRECTORY) or contract.DEFAULT_DIRECTORY,
        help=f"where the view is mounted (default: ${contract.ENV_DIRECTORY}, or {contract.DEFAULT_DIRECTORY})",
    )
    return command


def _add_timeout(command: argparse.ArgumentParser, default: float, meaning: str) -> None:
    command.add_argument(
        "--timeout",
        type=_seconds,
        default=default,
        metavar="SECONDS",
        help=f"{meaning}, in seconds (default: {default:g})",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
