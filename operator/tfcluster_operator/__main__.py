"""``python -m tfcluster_operator``: settings, logging, loop; nothing else."""

from __future__ import annotations

import os
import signal

# NB: before the imports that take a second: the first process of a container does not even get a signal that it has no
# handler for, and a pod that is deleted right after its start would hang for its whole grace period.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

import logging
import sys

import uvloop

from tfcluster_operator import handlers, logs
from tfcluster_operator.kube.leadership import LeaseLostError
from tfcluster_operator.settings import Settings, parse_arguments


def main() -> None:
    """Run the operator; the process exits with 0 when it was told to stop, with 1 when a part of it died."""
    settings = parse_arguments(sys.argv[1:])
    logs.begin(settings.log_level, settings.log_format)
    uvloop.run(_run(settings))


async def _run(settings: Settings) -> None:
    code = 0
    try:
        await handlers.run(settings)
    except LeaseLostError as error:
        logging.getLogger(__name__).error("the operator ends: %s", error)  # noqa: TRY400 - the reason says it all
        code = 1
    except Exception:
        logging.getLogger(__name__).exception("the operator ends")
        code = 1
    logging.shutdown()
    # NB: our own part has ended in order; what kopf left to wind down holds nothing.
    os._exit(code)


if __name__ == "__main__":
    main()
