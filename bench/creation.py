"""Creation: the operator from the TFClusters' POSTs until all objects exist, and the baseline client, in pairs."""

import asyncio
import time
from collections import Counter

from bench.arena import Arena, declare, opened, recorded, settled
from bench.bare_client import BareClient, Posted, bare_client, bare_declarations, bare_requests, children_of
from bench.book import Result
from bench.cpu import Idleness, cpu_seconds
from bench.onlooker import onlooker
from bench.pairs import TRIALS, Run, best_concurrency, take_pairs
from bench.shapes import Shape
from bench.stage import Stage
from tests.support.rbac import OPERATOR_USER

MEBIBYTE = 2**20
_LARGE = 1_000
#: A run of up to 300 tasks takes a second, and a moment of other load doubles that.
_TRIES = 2


async def creation(stage: Stage, name: str, shape: Shape, pairs: int) -> Result:
    """Measure the time until all objects of a shape exist.

    Returns:
        The series of the pairs; ``watched_s`` and the like are of the baseline client with an onlooker beside it;
        ``calls_beyond`` are the operator's calls beyond one for each object, a cluster; ``peak_mib`` is the peak of its
        resident memory.
    """
    shape = shape.scaled(stage.scale)
    result = Result(name)
    world = stage.world
    async with opened(world, shape.name) as arena, bare_client(world.bare_kubeconfig, stage.directory) as bare:
        posted = await recorded(arena, shape)
        await arena.clear()
        objects = len(children_of(posted))
        world.fresh_operator()
        yardstick = _Yardstick(arena, bare, posted, shape)
        large = shape.total_tasks > _LARGE
        concurrency = await best_concurrency(yardstick.seconds_with, trials=1 if large else TRIALS)
        result.facts |= {"tasks": shape.total_tasks, "objects": objects, "concurrency": concurrency}
        await _ours(arena, shape, objects, Result(""))  # the first run of a fresh operator does not count
        await take_pairs(
            result,
            lambda: _ours(arena, shape, objects, result),
            lambda: yardstick.run(concurrency),
            pairs=pairs,
            tries=1 if large else _TRIES,
            # A run of thousands of tasks takes a minute with its clean-up.
            **({} if large else {"watched": lambda: yardstick.run_watched(concurrency)}),
        )
    return result


class _Yardstick:
    """The baseline client's side; with several TFClusters it also POSTs them, as their users do."""

    def __init__(self, arena: Arena, bare: BareClient, posted: Posted, shape: Shape) -> None:
        self._arena, self._bare, self._posted = arena, bare, posted
        self._declarations = bare_declarations(shape.manifests(arena.namespace)) if shape.clusters > 1 else []

    async def seconds_with(self, concurrency: int) -> float:
        return (await self.run(concurrency)).seconds

    async def run_watched(self, concurrency: int) -> Run:
        """Do the same while a controller that only watches runs beside it."""
        async with onlooker(self._arena.world.bare_kubeconfig, self._arena.namespace) as pid:
            return await self.run(concurrency, pid)

    async def run(self, concurrency: int, *beside: int) -> Run:
        """Create the objects; the processor time is that of the baseline client and of the processes beside it."""
        arena, pids = self._arena, [self._bare.pid, *beside]
        requests = bare_requests(self._posted, owner=await arena.new_owner())
        await self._bare.load([*self._declarations, *requests], concurrency=concurrency)
        server, own = arena.world.server_cpu_seconds(), cpu_seconds(pids)
        reached = arena.observer.reached(added=len(requests))
        idleness, begin = Idleness(), time.perf_counter()
        await self._bare.send()
        took, idle = await reached - begin, idleness.share()
        run = Run(took, cpu_seconds(pids) - own, arena.world.server_cpu_seconds() - server, idle)
        await arena.clear()
        return run


async def _ours(arena: Arena, shape: Shape, objects: int, result: Result) -> Run:
    """One run of the operator; its processor time, calls and memory are counted until its statuses are written."""
    world = arena.world
    position = await asyncio.to_thread(world.audit.position)
    world.operator.forget_peak()
    server, own = world.server_cpu_seconds(), cpu_seconds([world.operator.pid])
    reached = arena.observer.reached(added=objects)
    idleness, begin = Idleness(), time.perf_counter()
    await declare(arena, shape)
    declared = time.perf_counter() - begin
    took, idle = await reached - begin, idleness.share()
    await settled(arena, shape)
    run = Run(took, cpu_seconds([world.operator.pid]) - own, world.server_cpu_seconds() - server, idle)
    await world.quiet()
    answered = await asyncio.to_thread(world.audit.since, position, user=OPERATOR_USER)
    calls = [call for call in answered if call.verb != "watch"]  # a watch that ended in the meantime is opened again
    result.add(
        declared_s=declared,
        calls=len(calls),
        calls_beyond=(len(calls) - objects) / shape.clusters,
        peak_mib=world.operator.memory()[1] / MEBIBYTE,
    )
    kinds = Counter(f"{call.verb} {call.target}" for call in calls)
    result.facts["calls_of_last_run"] = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    await arena.clear()
    return run
