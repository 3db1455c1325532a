"""The commands inside the pod: ``python -m tfcluster_resolver COMMAND``.

It decides which commands there are, that an error ends one with a line and a code, and how a signal ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Final

from tfcluster_resolver.commands import exit_codes
from tfcluster_resolver.commands.command import Command, parse
from tfcluster_resolver.commands.doctor import DOCTOR
from tfcluster_resolver.commands.matrix import MATRIX
from tfcluster_resolver.commands.serve import SERVE
from tfcluster_resolver.commands.show import SHOW
from tfcluster_resolver.commands.tf_config import EXEC
from tfcluster_resolver.commands.wait import WAIT
from tfcluster_resolver.errors import TFClusterError

#: In the order of ``--help``.
COMMANDS: Final[Mapping[str, Command]] = {
    "show": SHOW,
    "matrix": MATRIX,
    "doctor": DOCTOR,
    "exec": EXEC,
    "wait": WAIT,
    "serve": SERVE,
}


def main(words: list[str] | None = None) -> int:
    """Run one command."""
    options = parse(sys.argv[1:] if words is None else words, COMMANDS)
    try:
        return COMMANDS[options.command].run(options)
    except TFClusterError as error:
        print(f"tfcluster_resolver: {error}", file=sys.stderr)  # noqa: T201 - a command's complaint
        return exit_codes.of_error(error)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    os._exit(exit_codes.SIGNAL + number)


def _program() -> None:
    """Run as a program: a signal ends it with a code and no traceback, also as process 1 and amid a blocking call."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads on, as in `show | head -1`.
        code = exit_codes.SIGNAL + signal.SIGPIPE
    # NB: not sys.exit(): a probe whose name is still being looked up cannot be interrupted, and Python waits for it.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _program()
