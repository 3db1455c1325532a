"""A tenth of a crowd's pods, drawn by chance, is deleted: the time until they are replaced and reported."""

import asyncio
import itertools
import json
import random
import time

from bench.arena import Arena, opened, recorded
from bench.bare_client import BareClient, Posted, Request, bare_client, bare_requests
from bench.book import Result
from bench.cpu import cpu_seconds
from bench.crowd import Crowd, crowd
from bench.pairs import Run, best_concurrency, take_pairs
from bench.shapes import CLUSTER_LABEL, Shape, cluster_name
from bench.stage import Stage
from tests.support.objects import PODS
from tests.support.rbac import OPERATOR_USER

_BY_FORCE = "?gracePeriodSeconds=0"


async def losses(stage: Stage, name: str, pairs: int) -> Result:
    """Measure how long the operator takes to replace 1,000 of 10,000 pods.

    The clock starts with the first DELETE and ends when the last new pod was seen. The baseline client does not have to
    notice the losses: it begins to POST the same number of pods when the same number of its own pods is deleted. They
    are spread by chance over the same number of Services as the lost pods, so that scheduler and endpoint controller
    have the same work.

    Returns:
        The series of the pairs, and ``behind_s``: from the time when the last new pod was Ready until the last write
        of a status.
    """
    all_of_them = await crowd(stage)
    world = stage.world
    async with opened(world, "beside") as beside, bare_client(world.bare_kubeconfig, stage.directory) as bare:
        recorded_pods, service = await _recorded_like(stage, all_of_them.shape)
        yardstick = _Yardstick(beside, bare, recorded_pods, all_of_them.shape.clusters)
        await asyncio.to_thread(world.operator.start)
        await all_of_them.at_rest()
        await yardstick.make_services(service)
        await yardstick.post(16)
        concurrency = await best_concurrency(yardstick.seconds_with, trials=1)
        lost = all_of_them.shape.total_tasks // 10
        result = Result(name, facts={"pods": all_of_them.shape.total_tasks, "lost": lost, "concurrency": concurrency})
        await take_pairs(result, lambda: _ours(all_of_them, result), lambda: yardstick.run(concurrency), pairs=pairs)
    return result


def _victims(all_of_them: Crowd) -> list[str]:
    """Draw a tenth of the pods, as the loss of some nodes does."""
    names = sorted(all_of_them.ready.since)
    return random.sample(names, len(names) // 10)


async def _recorded_like(stage: Stage, shape: Shape) -> tuple[Posted, tuple[str, bytes]]:
    """Record the same number of pods as are lost, of a tenth of the TFClusters; and one of their Services."""
    tenth = Shape(-(-shape.clusters // 10), shape.tasks)
    async with opened(stage.world, "recorded") as arena:
        posted = await recorded(arena, tenth)
        await arena.clear()
    pods = [(path, body) for path, body in posted if path.endswith("/pods")]
    service = next((path, body) for path, body in posted if path.endswith("/services"))
    return pods[: shape.total_tasks // 10], service


async def _ours(all_of_them: Crowd, result: Result) -> Run:
    arena, world = all_of_them.arena, all_of_them.arena.world
    victims = _victims(all_of_them)
    position = await asyncio.to_thread(world.audit.position)
    server, own = world.server_cpu_seconds(), cpu_seconds([world.operator.pid])
    reached = arena.observer.reached(added=len(victims))
    begin = time.perf_counter()
    await _delete(arena, victims)
    took = await reached - begin
    await all_of_them.at_rest()
    run = Run(took, cpu_seconds([world.operator.pid]) - own, world.server_cpu_seconds() - server)
    writes = await asyncio.to_thread(world.audit.writes, position, user=OPERATOR_USER)
    told = max(write.finished.timestamp() for write in writes if write.target == "tfclusters/status")
    ready = max(all_of_them.ready.since.values()) - time.perf_counter() + time.time()
    result.add(behind_s=max(0.0, told - ready))
    return run


async def _delete(arena: Arena, names: list[str]) -> None:
    paths = [f"{PODS.path(arena.namespace, name)}{_BY_FORCE}" for name in names]
    await arena.send_all([("DELETE", path, None) for path in paths], concurrency=64)


class _Yardstick:
    """The baseline client's side: its pods of the last run are deleted while it POSTs those of the next."""

    def __init__(self, arena: Arena, bare: BareClient, pods: Posted, clusters: int) -> None:
        self._arena, self._bare, self._pods, self._clusters = arena, bare, pods, clusters
        self._numbers = itertools.count()
        self._names: list[str] = []

    async def make_services(self, like: tuple[str, bytes]) -> None:
        """Create the Service of each TFCluster, which is kept."""
        path, body = like
        name = json.loads(body)["metadata"]["name"]
        each = [(path, body.replace(name.encode(), cluster_name(number).encode())) for number in range(self._clusters)]
        owner = await self._arena.new_owner()
        await self._make(bare_requests(each, owner=owner, namespace=self._arena.namespace), 16)

    async def post(self, concurrency: int) -> None:
        """Create the first pods."""
        requests, self._names = await self._next()
        await self._make(requests, concurrency)

    async def _make(self, requests: list[Request], concurrency: int) -> None:
        await self._bare.load(requests, concurrency=concurrency)
        reached = self._arena.observer.reached(added=len(requests))
        await self._bare.send()
        await reached

    async def seconds_with(self, concurrency: int) -> float:
        return (await self.run(concurrency)).seconds

    async def run(self, concurrency: int) -> Run:
        arena, world = self._arena, self._arena.world
        async with arena.ready_pods() as ready:
            victims = self._names
            requests, self._names = await self._next()
            await self._bare.load(requests, concurrency=concurrency)
            server, own = world.server_cpu_seconds(), cpu_seconds([self._bare.pid])
            reached = arena.observer.reached(added=len(requests))
            begin = time.perf_counter()
            await asyncio.gather(self._bare.send(), _delete(arena, victims))
            took = await reached - begin
            await ready.holds(len(requests))
            await asyncio.to_thread(world.settle)
        return Run(took, cpu_seconds([self._bare.pid]) - own, world.server_cpu_seconds() - server)

    async def _next(self) -> tuple[list[Request], list[str]]:
        arena = self._arena
        owner = await arena.new_owner()
        suffix = f"-{next(self._numbers)}"
        requests = bare_requests(self._drawn(), owner=owner, namespace=arena.namespace, suffix=suffix)
        return requests, [json.loads(request.body)["metadata"]["name"] for request in requests]

    def _drawn(self) -> Posted:
        """Assign the pods to TFClusters drawn by chance."""
        drawn = []
        for path, body in self._pods:
            manifest = json.loads(body)
            manifest["metadata"]["labels"][CLUSTER_LABEL] = cluster_name(random.randrange(self._clusters))
            drawn.append((path, json.dumps(manifest).encode()))
        return drawn
