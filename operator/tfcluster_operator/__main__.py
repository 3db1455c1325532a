"""``python -m tfcluster_operator``: settings, logging, process; nothing else."""

import os
import signal

# Before the imports, which take a second: the first process of a container ignores signals that it does not handle, and
# a pod that is deleted right after its start would wait for its whole grace period.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

import sys

from tfcluster_operator import logs
from tfcluster_operator.settings import parse_arguments


def main() -> None:
    """Run the operator with the options of the command line; see :func:`tfcluster_operator.process.run`."""
    settings = parse_arguments(sys.argv[1:])
    try:
        from tfcluster_operator import process  # noqa: PLC0415 - --version and --help need none of its libraries
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed: pip install 'tfcluster[operator]' brings what the operator needs")
    logs.begin(settings.log_level, settings.log_format)
    process.run(settings)


if __name__ == "__main__":
    main()
