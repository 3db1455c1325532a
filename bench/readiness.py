"""From the first POST until all pods are Ready on simulated nodes: the operator's pods, and the same bare ones."""

import statistics
import time
from dataclasses import replace

from bench.arena import Arena, declare, opened, recorded, settled
from bench.bare_client import BareClient, Posted, bare_client, bare_requests, children_of
from bench.book import Result
from bench.cpu import cpu_seconds
from bench.observer import Register
from bench.pairs import Run, take_pairs
from bench.shapes import CLUSTER_LABEL, Shape, cluster_name
from bench.stage import Stage

#: The concurrent requests of the baseline client: to create the objects is a small part of this.
_CONCURRENCY = 32


async def readiness(stage: Stage, name: str, shape: Shape, pairs: int) -> Result:
    """Measure how soon the pods of many TFClusters are Ready.

    Returns:
        The series of the pairs, and ``slowest``: how many times the median TFCluster the slowest one took.
    """
    shape = shape.scaled(stage.scale)
    result = Result(name, facts={"tasks": shape.total_tasks, "clusters": shape.clusters})
    world = stage.world
    async with opened(world, shape.name) as arena, bare_client(world.bare_kubeconfig, stage.directory) as bare:
        posted = _repeated(await recorded(arena, replace(shape, clusters=1)), shape.clusters)
        world.fresh_operator()

        result.facts |= {"concurrency": _CONCURRENCY, "objects": len(children_of(posted))}
        await take_pairs(result, lambda: _ours(arena, shape, result), lambda: _bare(arena, bare, posted), pairs=pairs)
    return result


def _repeated(posted: Posted, clusters: int) -> Posted:
    """Repeat the requests for the objects of one TFCluster; all TFClusters share the resolver's ConfigMap."""
    first, requests = cluster_name(0).encode(), children_of(posted)
    each = [(path, body) for path, body in requests if first in body]
    names = [cluster_name(number).encode() for number in range(clusters)]
    shared = [(path, body) for path, body in requests if first not in body]
    return [*shared, *((path, body.replace(first, name)) for name in names for path, body in each)]


async def _ours(arena: Arena, shape: Shape, result: Result) -> Run:
    world = arena.world
    await arena.clear()
    async with arena.ready_pods() as ready:
        server, own = world.server_cpu_seconds(), cpu_seconds([world.operator.pid])
        begin = time.perf_counter()
        await declare(arena, shape)
        took = await ready.holds(shape.total_tasks) - begin
        await settled(arena, shape)
        run = Run(took, cpu_seconds([world.operator.pid]) - own, world.server_cpu_seconds() - server)
        each = _by_cluster(ready, begin)
        result.add(slowest=max(each) / statistics.median(each))
    await world.quiet()
    return run


def _by_cluster(ready: Register, begin: float) -> list[float]:
    last: dict[str, float] = {}
    for name, moment in ready.since.items():
        cluster = ready.labels[name][CLUSTER_LABEL]
        last[cluster] = max(last.get(cluster, 0.0), moment - begin)
    return list(last.values())


async def _bare(arena: Arena, bare: BareClient, posted: Posted) -> Run:
    world = arena.world
    await arena.clear()
    async with arena.ready_pods() as ready:
        requests = bare_requests(posted, owner=await arena.new_owner())
        pods = sum(request.path.endswith("/pods") for request in requests)
        await bare.load(requests, concurrency=_CONCURRENCY)
        server, own = world.server_cpu_seconds(), cpu_seconds([bare.pid])
        begin = time.perf_counter()
        await bare.send()
        took = await ready.holds(pods) - begin
        return Run(took, cpu_seconds([bare.pid]) - own, world.server_cpu_seconds() - server)
