"""The process: its loop, and the code with which it ends."""

from __future__ import annotations

import gc
import logging
import os

import uvloop

from tfcluster_operator import handlers
from tfcluster_operator.kube.errors import HistoryLostError
from tfcluster_operator.kube.leadership import LeaseLostError
from tfcluster_operator.settings import Settings


def run(settings: Settings) -> None:
    """Run the operator; the process exits with 0 when it was told to stop, with 1 when a part of it died."""
    # NB: a full collection would look for 50 ms at the objects of the imports, and none of them ever goes.
    gc.freeze()
    uvloop.run(_run(settings))


async def _run(settings: Settings) -> None:
    code = 0
    try:
        await handlers.run(settings)
    except (LeaseLostError, HistoryLostError) as error:
        logging.getLogger(__name__).error("the operator ends: %s", error)  # noqa: TRY400 - the reason says it all
        code = 1
    except Exception:
        logging.getLogger(__name__).exception("the operator ends")
        code = 1
    logging.shutdown()
    # NB: our own part has ended in order; what kopf left to wind down holds nothing.
    os._exit(code)
