"""The crowd: 1,000 TFClusters of 10 tasks on simulated nodes, all Ready; several measurements look at the same one."""

import asyncio
from dataclasses import dataclass

from bench.arena import Arena, declare, opened
from bench.observer import Register
from bench.shapes import Shape
from bench.stage import Stage
from tests.support.metrics import Scrape
from tests.support.operator_process import OperatorProcess

SHAPE = Shape(1000, 10)


@dataclass(frozen=True)
class Crowd:
    """The arena, and its Ready pods; the operator runs."""

    arena: Arena
    shape: Shape
    ready: Register
    reported: Register
    """The TFClusters whose status tells that all their tasks are ready."""

    async def at_rest(self) -> None:
        """Return when all tasks are ready and reported, and the operator does not write any longer."""
        await self._all_ready()
        await self.arena.world.quiet()
        # A delayed watch can have shown pods that were already deleted.
        await self._all_ready()

    async def _all_ready(self) -> None:
        await self.ready.holds(self.shape.total_tasks)
        await self.reported.holds(self.shape.clusters)


async def crowd(stage: Stage) -> Crowd:
    """Return the crowd of a stage, at rest; the first call creates it, and the operator runs afterwards."""
    found: Crowd | None = stage.shared.get("crowd")
    if found is None:
        found = stage.shared["crowd"] = await _gather(stage)
    operator = stage.world.operator
    if not operator.running:
        await asyncio.to_thread(operator.start)
    await found.at_rest()
    return found


async def _gather(stage: Stage) -> Crowd:
    shape = SHAPE.scaled(stage.scale)
    arena = await stage.stack.enter_async_context(opened(stage.world, "crowd"))
    ready = await stage.stack.enter_async_context(arena.ready_pods())
    reported = await stage.stack.enter_async_context(arena.reported_ready(shape.tasks))
    stage.world.fresh_operator()
    await declare(arena, shape)
    return Crowd(arena, shape, ready, reported)


def passes_made(operator: OperatorProcess) -> float:
    """Return the number of reconciles since the operator's start, from its metrics."""
    text, _ = operator.scrape()
    return sum(Scrape(text).not_zero("tfcluster_passes_total").values())
