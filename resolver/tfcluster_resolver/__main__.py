"""The commands inside the pod: ``python -m tfcluster_resolver COMMAND``."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from typing import Final

from tfcluster_resolver import __version__
from tfcluster_resolver.commands import command
from tfcluster_resolver.commands.doctor import DOCTOR
from tfcluster_resolver.commands.serve import SERVE
from tfcluster_resolver.commands.show import SHOW
from tfcluster_resolver.commands.tf_config import EXEC
from tfcluster_resolver.errors import TFClusterError
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.waiting import wait


def _wait(options: argparse.Namespace) -> int:
    count = wait(TFClusterResolver(directory=options.directory), jobs=options.job, timeout=options.timeout)
    command.say(f"{count} other {'task listens' if count == 1 else 'tasks listen'}")
    return command.DONE


_JOB: Final[command.Options] = {
    "--job": {"action": "append", "default": [], "metavar": "JOB", "help": "wait only for this job; can be repeated"}
}
WAIT: Final = command.Command(
    brief="wait until the other tasks listen",
    description="Wait until every other task that this one sees accepts connections. A resize is followed.",
    codes=(*command.READING, command.NO_SUCH_TASK, command.NOT_IN_TIME),
    success="every task listens",
    options=_JOB | command.timeout(300.0, "how long to wait for all of them together"),
    run=_wait,
)

#: In the order of ``--help``.
COMMANDS: Final = {"show": SHOW, "doctor": DOCTOR, "exec": EXEC, "wait": WAIT, "serve": SERVE}


def main(words: list[str] | None = None) -> int:
    options = command.parse(sys.argv[1:] if words is None else words, COMMANDS, __version__)
    try:
        return COMMANDS[options.command].run(options)
    except TFClusterError as error:
        print(f"tfcluster_resolver: {error}", file=sys.stderr)  # noqa: T201 - a command's complaint
        return command.code_of(error)


def _program() -> None:
    """Run as a program: a signal ends it, also as process 1 and amid a blocking call."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, command.end_by_signal)
    try:
        code = main()
        print(end="", flush=True)  # noqa: T201 - unlike sys.stdout.flush() it works without an output
    except BrokenPipeError:  # no reader is left, as in `show | head -1`
        code = command.SIGNAL + signal.SIGPIPE
    except OSError as error:
        print(f"tfcluster_resolver: cannot write the output: {error.strerror}", file=sys.stderr)  # noqa: T201 - likewise
        code = os.EX_IOERR
    # Not sys.exit(): a probe whose name is still being looked up cannot be interrupted, and Python waits for it.
    with contextlib.suppress(OSError):
        print(end="", flush=True, file=sys.stderr)  # noqa: T201 - likewise
    os._exit(code)


if __name__ == "__main__":
    _program()
