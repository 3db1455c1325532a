"""Run one workload in virtual time, in a separate process."""

import logging
import random
import traceback

from gates.workloads import play
from gates.world import Counts, World, calibrate
from support.virtual_time import run_in_virtual_time

#: The cost of each phase of a workload, by its name.
Phases = dict[str, Counts]


def run(name: str) -> Phases | str:
    logging.disable(logging.CRITICAL)
    random.seed(7)
    calibration = calibrate()

    async def live() -> Phases:
        world = World(calibration)
        await play(name, world)
        return world.phases

    try:
        phases: Phases = run_in_virtual_time(live())
    except Exception:  # noqa: BLE001 - whatever it is, it is this workload's and is told with it
        return traceback.format_exc(limit=-6)
    return phases
