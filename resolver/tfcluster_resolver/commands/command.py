"""The common parts of the commands of ``python -m tfcluster_resolver``: words, exit codes, reading the view.

The codes are those of sysexits.h and of shells.
"""

from __future__ import annotations

import argparse
import math
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from tfcluster_resolver import contract, errors
from tfcluster_resolver.cluster import Membership, Task, own_task
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.views.file import ViewFile

DONE: Final = 0
CHECK_FAILED: Final = 1
USAGE: Final = 2
MALFORMED: Final = 65
NO_VIEW: Final = 66
NO_SUCH_TASK: Final = 68
NO_TENSORFLOW: Final = 69
NO_SERVER: Final = 71
NOT_IN_TIME: Final = 75
WRONG_ENVIRONMENT: Final = 78
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
#: The number of the signal is added.
SIGNAL: Final = 128

#: The exit codes of every command that reads the view.
READING: Final = (MALFORMED, NO_VIEW, WRONG_ENVIRONMENT)

_MEANINGS: Final = {
    USAGE: "wrong arguments",
    CHECK_FAILED: "a check failed",
    MALFORMED: "the view is malformed, or newer than this package",
    NO_VIEW: "the view is missing or unreadable",
    NO_SUCH_TASK: "the view does not show such a job",
    NO_TENSORFLOW: "TensorFlow is not installed",
    NO_SERVER: "the server cannot start, such as when its port is taken",
    NOT_IN_TIME: "not every task listens after the time-out",
    WRONG_ENVIRONMENT: "the environment does not say which task this is, or an address is wrong",
    NOT_EXECUTABLE: "the program cannot be executed",
    NOT_FOUND: "the program does not exist",
}

#: The first that fits counts.
_OF_ERRORS: Final[tuple[tuple[type[errors.TFClusterError], int], ...]] = (
    (errors.ViewNotFoundError, NO_VIEW),
    (errors.ViewUnreadableError, NO_VIEW),
    (errors.ViewError, MALFORMED),
    (errors.NoSuchTaskError, NO_SUCH_TASK),
    (errors.TensorFlowNotFoundError, NO_TENSORFLOW),
    (errors.TasksUnreachableError, NOT_IN_TIME),
    (errors.ServeError, NO_SERVER),
    (errors.TFClusterError, WRONG_ENVIRONMENT),
)

_PROGRAM: Final = "python -m tfcluster_resolver"
#: Columns of the descriptions: exit codes keep their lines, so argparse wraps nothing.
_WIDTH: Final = 80

#: Options, with the arguments of argparse for each.
Options = dict[str, dict[str, Any]]
JSON: Final[Options] = {"--json": {"action": "store_true", "help": "print one JSON object instead of text"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command, and the text of its ``--help``."""

    brief: str
    description: str
    #: Runs it with the parsed arguments, and returns the exit code.
    run: Callable[[argparse.Namespace], int]
    #: The exit codes that it can end with, in addition to success and wrong arguments.
    codes: tuple[int, ...] = ()
    success: str = "done"
    #: All but ``--directory``.
    options: Options = field(default_factory=dict)
    #: Whether it replaces itself with the program after ``--``.
    runs_program: bool = False


def code_of(error: errors.TFClusterError) -> int:
    return next(code for kind, code in _OF_ERRORS if isinstance(error, kind))


def parse(words: Sequence[str], commands: Mapping[str, Command], version: str) -> argparse.Namespace:
    """Parse the command line: ``command``, ``directory``, ``program`` (the arguments after ``--``) and the options."""
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="A TensorFlow cluster on Kubernetes, as one of its tasks sees it.",
        epilog="COMMAND --help lists the command's exit codes.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=version)
    listed = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in commands.items():
        usage = f"{_PROGRAM} {name} [-h] [--directory DIRECTORY] -- PROGRAM [ARGUMENT ...]"
        one = listed.add_parser(
            name,
            help=command.brief,
            description=textwrap.fill(command.description, _WIDTH),
            usage=usage if command.runs_program else None,
            epilog=explain_codes(command),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        one.add_argument(
            "--directory",
            default=os.environ.get(contract.ENV_DIRECTORY) or contract.DEFAULT_DIRECTORY,
            help=f"where the view is mounted (default: ${contract.ENV_DIRECTORY}, or {contract.DEFAULT_DIRECTORY})",
        )
        for option, how in command.options.items():
            one.add_argument(option, **how)
    options = parser.parse_args(words[:cut])
    options.program = list(words[cut + 1 :])
    runs_program = commands[options.command].runs_program
    if runs_program and not options.program:
        parser.error(f"{options.command}: the program is missing: {options.command} -- PROGRAM [ARGUMENT ...]")
    if cut < len(words) and not runs_program:
        parser.error(f"{options.command} does not run a program, so -- is not allowed")
    return options


def explain_codes(command: Command) -> str:
    meanings = {code: _MEANINGS[code] for code in (USAGE, *command.codes)}
    if not command.runs_program:
        meanings[DONE] = command.success
    lines = [(str(code), meanings[code]) for code in sorted(meanings)]
    if command.runs_program:
        lines.append(("any", "that of the program, which takes this one's place"))
    else:
        lines.append((f"{SIGNAL}+n", f"ended by signal n ({SIGNAL + 15} for SIGTERM)"))
    return "exit codes:\n" + "\n".join(f"  {code:<7}{meaning}" for code, meaning in lines)


def timeout(default: float, meaning: str) -> Options:
    words = f"{meaning}, in seconds (default: {default:g})"
    return {"--timeout": {"type": _seconds, "default": default, "metavar": "SECONDS", "help": words}}


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def end_by_signal(number: int, _: FrameType | None) -> NoReturn:
    """Handle a signal by ending the process, with a code and no traceback."""
    os._exit(SIGNAL + number)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the command's output


def read(directory: str) -> tuple[Membership, Path]:
    """Read the cluster as this pod's task sees it, and return the file as well."""
    own = own_task(os.environ)
    view, path = ViewFile(directory, own.index if own is not None else None).read()
    return Membership(view=view, own=own), path


def seen_by(resolver: TFClusterResolver, purpose: str) -> tuple[contract.View, Task]:
    """Return the view and the task of a resolver."""
    if not isinstance(resolver, TFClusterResolver):
        raise errors.ArgumentTypeError(f"resolver must be a TFClusterResolver, not {type(resolver).__name__}")
    membership = resolver.membership()
    job, index, own = resolver.task_type, resolver.task_id, membership.own
    if job is None or index is None:
        raise errors.TaskIdentityError(
            f"this process is not in a TFCluster's pod ({contract.ENV_JOB}, {contract.ENV_TASK_INDEX} and "
            f"{contract.ENV_ADDRESS} are unset) and no resolver names a task, so {purpose}"
        )
    view = replace(membership.view, rpc_layer=resolver.rpc_layer)
    if own is None or (own.job, own.index) != (job, index):
        # An evaluator is in no ClusterSpec but its own, and no task connects to it.
        outside = job == contract.EVALUATOR and job not in view.jobs
        own = Task(job, index, "" if outside else membership.address_of(job, index))
    return view, own
