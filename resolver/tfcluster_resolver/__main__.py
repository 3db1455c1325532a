"""The command line inside the pod: ``python -m tfcluster_resolver show | serve``.

It turns arguments into calls and errors into exit codes, and decides nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from tfcluster_resolver import __version__, contract, errors, serve, show
from tfcluster_resolver.membership import Membership
from tfcluster_resolver.task import own_task
from tfcluster_resolver.view_file import ViewFile

#: The first that fits counts; the numbers are those of sysexits.h.
_EXIT_CODES: Final[tuple[tuple[type[errors.TFClusterError], int], ...]] = (
    (errors.ViewNotFoundError, 66),
    (errors.ViewUnreadableError, 66),
    (errors.ViewError, 65),
    (errors.TensorFlowNotFoundError, 69),
    (errors.ServeError, 71),
    (errors.TFClusterError, 78),
)

_EPILOG: Final = """\
exit codes:
  0        done
  2        wrong arguments
  65       the view is malformed, or newer than this package
  66       the view is missing or unreadable
  69       TensorFlow is not installed
  71       the server cannot start, such as when its port is taken
  78       the environment does not say which task this is, or its address is wrong
  128+n    ended by signal n (serve: 143 for SIGTERM)
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after the program's name; those of the process by default.

    Returns:
        The exit code, as ``--help`` lists them.
    """
    options = _parser().parse_args(arguments)
    try:
        own = own_task(os.environ)
        read = ViewFile(options.directory, own.index if own is not None else None).read()
        membership = Membership(view=read.view, own=own)
        if options.command == "serve":
            serve.serve(membership)
        describe = show.as_json if options.json else show.as_text
        print(describe(membership, read.path))  # noqa: T201 - the command's output
    except errors.TFClusterError as error:
        print(f"tfcluster_resolver: {error}", file=sys.stderr)  # noqa: T201 - likewise
        return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tfcluster_resolver",
        description="A TensorFlow cluster on Kubernetes, as one of its tasks sees it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--directory",
        default=os.environ.get(contract.ENV_DIRECTORY) or contract.DEFAULT_DIRECTORY,
        help=f"where the view is mounted (default: ${contract.ENV_DIRECTORY}, or {contract.DEFAULT_DIRECTORY})",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shown = commands.add_parser(
        "show",
        parents=[common],
        help="print the cluster that this task sees",
        description="Print epoch, tasks and their addresses, the own task, device filters and accelerators. "
        "Needs no TensorFlow.",
    )
    shown.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    commands.add_parser(
        "serve",
        parents=[common],
        help="run this task's TensorFlow server until SIGTERM",
        description="Run tf.distribute.Server for this task, on the port of $TFCLUSTER_ADDRESS. The task is ready when "
        "the port accepts connections. SIGTERM ends it at once, also as process 1 of a container, with exit code 143.",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
