"""The commands inside the pod: ``python -m tfcluster_resolver show | matrix | doctor | exec | wait | serve``.

It turns arguments into calls and errors into exit codes, and decides nothing else.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType

from tfcluster_resolver import errors, waiting
from tfcluster_resolver.cluster import Membership, own_task
from tfcluster_resolver.commands import arguments, doctor, exit_codes, matrix, serve, show, tf_config
from tfcluster_resolver.views.file import ViewFile


def main(words: list[str] | None = None) -> int:
    """Run one command.

    Args:
        words: the words after the program's name; those of the process by default.

    Returns:
        The exit code, as the command's ``--help`` lists them.
    """
    options = arguments.parse(sys.argv[1:] if words is None else words)
    try:
        return _run(options)
    except errors.TFClusterError as error:
        print(f"tfcluster_resolver: {error}", file=sys.stderr)  # noqa: T201 - a command's complaint
        return exit_codes.of_error(error)


def _run(options: argparse.Namespace) -> int:
    if options.command == "doctor":
        checks = doctor.diagnose(options.directory, timeout=options.timeout)
        _say(doctor.as_json(checks) if options.json else doctor.as_text(checks))
        return exit_codes.CHECK_FAILED if doctor.failed(checks) else exit_codes.DONE
    own = own_task(os.environ)
    source = ViewFile(options.directory, own.index if own is not None else None)
    if options.command == "wait":
        count = waiting.await_tasks(source, own, jobs=options.job, timeout=options.timeout)
        _say(f"{count} other {'task listens' if count == 1 else 'tasks listen'}")
        return exit_codes.DONE
    read = source.read()
    membership = Membership(view=read.view, own=own)
    match options.command:
        case "serve":
            serve.serve(membership)
        case "exec":
            tf_config.execute(membership, options.directory, options.program)
        case "matrix":
            _say(matrix.as_json(membership) if options.json else matrix.as_text(membership))
        case _:
            _say(show.as_json(membership, read.path) if options.json else show.as_text(membership, read.path))
    return exit_codes.DONE


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the command's output


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
