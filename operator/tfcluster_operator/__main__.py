"""``python -m tfcluster_operator``: settings, logging, process; nothing else."""

from __future__ import annotations

import os
import signal

# Before the imports that take a second: the first process of a container does not even get a signal that it has no
# handler for, and a pod that is deleted right after its start would hang for its whole grace period.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

import sys

from tfcluster_operator import logs
from tfcluster_operator.settings import parse_arguments


def main() -> None:
    """Run the operator as the command line says; see :func:`tfcluster_operator.process.run`."""
    settings = parse_arguments(sys.argv[1:])
    try:
        from tfcluster_operator import process  # noqa: PLC0415 - --version and --help need none of its libraries
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed: pip install 'tfcluster[operator]' brings what the operator needs")
    logs.begin(settings.log_level, settings.log_format)
    process.run(settings)


if __name__ == "__main__":
    main()
