"""``python -m tfcluster_operator``: settings, logging, loop; nothing else."""

from __future__ import annotations

import logging
import os
import sys

import uvloop

from tfcluster_operator import handlers
from tfcluster_operator.settings import Settings, parse_arguments


def main() -> None:
    """Run the operator; the process exits with 0 when it was told to stop, with 1 when a part of it died."""
    settings = parse_arguments(sys.argv[1:])
    # kopf asks for the user's name, and a container's user need not have one.
    os.environ.setdefault("USER", "tfcluster-operator")
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr
    )
    # kopf logs a line for each event and repeats what the conditions say.
    for noisy in ("kopf", "aiohttp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    uvloop.run(_run(settings))


async def _run(settings: Settings) -> None:
    code = 0
    try:
        await handlers.run(settings)
    except Exception:
        logging.getLogger(__name__).exception("the operator ends")
        code = 1
    logging.shutdown()
    # NB: our own part has ended in order; kopf would take seconds to wind down a watch that holds nothing.
    os._exit(code)


if __name__ == "__main__":
    main()
