"""The start of an operator with an existing crowd: the time until it works, and the number of its writes."""

import asyncio
import time

from bench.book import Result
from bench.cpu import cpu_seconds
from bench.creation import MEBIBYTE
from bench.crowd import Crowd, crowd, passes_made
from bench.stage import Stage
from tests.support.rbac import OPERATOR_USER

#: The interval of the metrics requests; each answer costs the operator some milliseconds, which count as its own.
_LOOK_SECONDS = 0.1


async def start(stage: Stage, name: str, runs: int) -> Result:
    """Measure cold starts.

    Returns:
        The series ``first_s`` (from the start of the process to the end of its first pass), ``steady_s`` (until each
        TFCluster had one), ``writes``, ``requests``, ``cpu_s`` and ``peak_mib``.
    """
    all_of_them = await crowd(stage)
    result = Result(name, facts={"pods": all_of_them.shape.total_tasks, "clusters": all_of_them.shape.clusters})
    for _ in range(runs):
        await _start(stage, all_of_them, result)
    return result


async def _start(stage: Stage, all_of_them: Crowd, result: Result) -> None:
    world, operator = stage.world, stage.world.operator
    await asyncio.to_thread(operator.stop)
    position = await asyncio.to_thread(world.audit.position)
    begin = time.perf_counter()
    operator.start(wait=False)
    await _until(stage, 1)
    first = time.perf_counter() - begin
    await _until(stage, all_of_them.shape.clusters)
    steady = time.perf_counter() - begin
    used = cpu_seconds([operator.pid])
    await world.quiet()
    requests = await asyncio.to_thread(world.audit.since, position, user=OPERATOR_USER)
    result.add(
        first_s=first,
        steady_s=steady,
        writes=sum(request.is_write for request in requests),
        requests=len(requests),
        cpu_s=used,
        peak_mib=operator.memory()[1] / MEBIBYTE,
    )


async def _until(stage: Stage, passes: int) -> None:
    """Return when the operator has done this number of reconciles."""
    operator = stage.world.operator
    while True:
        assert operator.running, operator.tail()
        try:
            made = await asyncio.to_thread(passes_made, operator)
        except OSError:  # it does not listen yet
            made = 0
        if made >= passes:
            return
        await asyncio.sleep(_LOOK_SECONDS)
