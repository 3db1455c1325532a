"""A cluster of 300 tasks is suspended, and deleted."""

import asyncio
import time

from bench.arena import Arena, declare, opened, recorded, settled
from bench.bare_client import BareClient, Posted, Request, bare_client, bare_requests
from bench.book import Result
from bench.cpu import cpu_seconds
from bench.pairs import Run, best_concurrency, take_pairs
from bench.shapes import Shape
from bench.stage import Stage
from tests.support.objects import PODS, TFCLUSTERS
from tests.support.rbac import OPERATOR_USER

SHAPE = Shape(1, 300, scheduled=False)


async def life(stage: Stage, name: str, pairs: int) -> Result:
    """Measure suspending against a baseline client that deletes the same number of pods, and deleting.

    Returns:
        The series of the pairs (until no pod is left), ``calls`` of a suspension, and ``delete_s``: from the DELETE of
        the TFCluster until the garbage collector has removed all that it owned.
    """
    shape = SHAPE.scaled(stage.scale)
    result = Result(name, facts={"tasks": shape.total_tasks})
    world = stage.world
    async with opened(world, "living") as arena, bare_client(world.bare_kubeconfig, stage.directory) as bare:
        posted = await recorded(arena, shape)
        await arena.clear()
        world.fresh_operator()

        async def seconds_with(concurrency: int) -> float:
            return (await _bare(arena, bare, posted, concurrency)).seconds

        concurrency = await best_concurrency(seconds_with)
        result.facts["concurrency"] = concurrency
        await take_pairs(
            result,
            lambda: _ours(arena, shape, result),
            lambda: _bare(arena, bare, posted, concurrency),
            pairs=pairs,
            tries=2,
        )
    return result


async def _ours(arena: Arena, shape: Shape, result: Result) -> Run:
    world = arena.world
    await declare(arena, shape)
    await settled(arena, shape)
    position = await world.quiet()
    path = TFCLUSTERS.path(arena.namespace, shape.manifests(arena.namespace)[0]["metadata"]["name"])
    server, own = world.server_cpu_seconds(), cpu_seconds([world.operator.pid])
    gone = arena.observer.reached(deleted=shape.total_tasks)
    begin = time.perf_counter()
    await arena.send("PATCH", path, {"spec": {"suspend": True}})
    took = await gone - begin
    await world.quiet()
    run = Run(took, cpu_seconds([world.operator.pid]) - own, world.server_cpu_seconds() - server)
    result.add(calls=len(await asyncio.to_thread(world.audit.since, position, user=OPERATOR_USER)))
    await arena.send("PATCH", path, {"spec": {"suspend": False}})
    await settled(arena, shape)
    await world.quiet()
    owned = await arena.count(owned=True)
    gone = arena.observer.reached(deleted=owned)
    begin = time.perf_counter()
    await arena.send("DELETE", path)
    result.add(delete_s=await gone - begin)
    await arena.clear()
    return run


async def _bare(arena: Arena, bare: BareClient, posted: Posted, concurrency: int) -> Run:
    world = arena.world
    requests = bare_requests(posted, owner=await arena.new_owner())
    await bare.load(requests, concurrency=concurrency)
    made = arena.observer.reached(added=len(requests))
    await bare.send()
    await made
    pods = [pod["metadata"]["name"] for pod in world.objects.list(PODS, arena.namespace)]
    await bare.load([Request("DELETE", PODS.path(arena.namespace, pod)) for pod in pods], concurrency=concurrency)
    server, own = world.server_cpu_seconds(), cpu_seconds([bare.pid])
    gone = arena.observer.reached(deleted=len(pods))
    begin = time.perf_counter()
    await bare.send()
    run = Run(await gone - begin, cpu_seconds([bare.pid]) - own, world.server_cpu_seconds() - server)
    await arena.clear()
    return run
