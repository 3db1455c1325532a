"""``python -m tfcluster_resolver``: look at the cluster from a pod, or serve the pod's task.

Exit codes: 0 it worked (``serve``: it was told to end), 1 another error of this package, 2 wrong arguments, 3 no usable
view or task, 4 no TensorFlow, 5 the port is taken.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tfcluster_resolver.errors import (
    NoSuchTaskError,
    PortTakenError,
    TaskIdentityError,
    TensorFlowNotFoundError,
    TFClusterError,
    ViewError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the command line after the program's name; the process's own by default.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m tfcluster_resolver", description="A TFCluster, from inside a pod.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="print what this task sees: epoch, tasks, filters, accelerators")
    show.add_argument("--json", action="store_true", help="as JSON")
    commands.add_parser("serve", help="run TensorFlow's server for this pod's task, until SIGTERM")
    options = parser.parse_args(arguments)
    try:
        if options.command == "serve":
            from tfcluster_resolver.serve import serve  # noqa: PLC0415 - each command loads what it needs

            serve()
        else:
            _show(as_json=options.json)
    except TFClusterError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return _exit_code(error)
    return 0


def _show(*, as_json: bool) -> None:
    from tfcluster_resolver import show  # noqa: PLC0415 - each command loads what it needs

    sys.stdout.write((show.as_json if as_json else show.as_text)(show.look()) + "\n")


def _exit_code(error: TFClusterError) -> int:
    match error:
        case ViewError() | TaskIdentityError() | NoSuchTaskError():
            return 3
        case TensorFlowNotFoundError():
            return 4
        case PortTakenError():
            return 5
        case _:
            return 1


if __name__ == "__main__":
    sys.exit(main())
