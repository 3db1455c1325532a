"""``python -m tfcluster_operator``: settings, logging, loop; nothing else."""

from __future__ import annotations

import logging
import sys

import uvloop

from tfcluster_operator import handlers
from tfcluster_operator.settings import parse_arguments


def main() -> int:
    """Run the operator.

    Returns:
        The process's exit code: 0 when it was told to stop, 1 when a part of it died.
    """
    settings = parse_arguments(sys.argv[1:])
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr
    )
    # kopf logs a line for each event and repeats what the conditions say.
    for noisy in ("kopf", "aiohttp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        uvloop.run(handlers.run(settings))
    except Exception:
        logging.getLogger(__name__).exception("the operator ends")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
