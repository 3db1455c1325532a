"""``wait``: until the other tasks listen.  How that is found out is in :mod:`tfcluster_resolver.waiting`."""

from __future__ import annotations

import argparse
from typing import Final

from tfcluster_resolver.commands import exit_codes
from tfcluster_resolver.commands.command import Command, add_timeout, say
from tfcluster_resolver.resolver import TFClusterResolver
from tfcluster_resolver.waiting import wait

#: Seconds that the tasks get; pulling a large image takes minutes.
_TIMEOUT: Final = 300.0


def _run(options: argparse.Namespace) -> int:
    count = wait(TFClusterResolver(directory=options.directory), jobs=options.job, timeout=options.timeout)
    say(f"{count} other {'task listens' if count == 1 else 'tasks listen'}")
    return exit_codes.DONE


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--job", action="append", default=[], metavar="JOB", help="wait for this job alone; may be repeated"
    )
    add_timeout(parser, _TIMEOUT, "how long to wait for all of them together")


WAIT: Final = Command(
    brief="wait until the other tasks listen",
    description="Wait until every other task that this one sees accepts connections. A resize meanwhile is followed.",
    codes=(*exit_codes.READING, exit_codes.NO_SUCH_TASK, exit_codes.NOT_IN_TIME),
    success="every task listens",
    add_options=_add_options,
    run=_run,
)
