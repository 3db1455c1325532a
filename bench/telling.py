"""An edit that changes the view of 200 running pods: the time until each pod is notified."""

from __future__ import annotations

import asyncio
import time

from bench.arena import opened
from bench.bare_client import Request, bare_client
from bench.book import Result
from bench.cpu import cpu_seconds
from bench.pairs import Run, take_pairs
from bench.stage import Stage
from tests.support.manifests import pod_template, tfcluster
from tests.support.objects import CONFIG_MAPS, MERGE, PODS, TFCLUSTERS

_PODS = 200
_VIEW = "tfcluster.dev/view"
_BARE = "bench.example/view"
_CONCURRENCY = 32


async def telling(stage: Stage, name: str, pairs: int) -> Result:
    """Measure from the PATCH of a number of replicas until the last pod has the annotation of its new view.

    The baseline client PATCHes one ConfigMap and then an annotation of each of the same pods.
    """
    count = stage.scaled(_PODS, least=2)
    result = Result(name, facts={"pods": count})
    world = stage.world
    world.fresh_operator()
    async with opened(world, "telling") as arena, bare_client(world.bare_kubeconfig, stage.directory) as bare:
        template = pod_template(command=["python", "-m", "train"])
        cluster = tfcluster("told").job("ps", replicas=count, template=template)
        cluster.job("worker", replicas=1, maxReplicas=4, template=template)
        path = TFCLUSTERS.path(arena.namespace)
        async with arena.ready_pods() as ready:
            await arena.send("POST", path, cluster.build(), content="application/json")
            await ready.holds(count + 1)
            await world.quiet()
            servers = sorted(name for name, of in ready.labels.items() if of["tfcluster.dev/job"] == "ps")
        view = CONFIG_MAPS.path(arena.namespace, (await arena.new_owner())["metadata"]["name"])
        replicas, number = 1, 0

        async def ours() -> Run:
            nonlocal replicas
            replicas = 3 - replicas
            found = await arena.send("GET", PODS.path(arena.namespace))
            old = {pod["metadata"]["annotations"].get(_VIEW) for pod in found["items"]}
            told = arena.pods_that(
                lambda pod: pod.metadata.name in servers and pod.metadata.annotations.get(_VIEW) not in old
            )
            async with told as register:
                server, own = world.server_cpu_seconds(), cpu_seconds([world.operator.pid])
                begin = time.perf_counter()
                await arena.send("PATCH", f"{path}/told", {"spec": {"jobs": {"worker": {"replicas": replicas}}}})
                took = await register.holds(count) - begin
                run = Run(took, cpu_seconds([world.operator.pid]) - own, world.server_cpu_seconds() - server)
            await asyncio.to_thread(world.settle)
            await world.quiet()
            return run

        async def by_hand() -> Run:
            nonlocal number
            number += 1
            new = str(number)
            body = f'{{"metadata":{{"annotations":{{"{_BARE}":"{new}"}}}}}}'
            pods = [Request("PATCH", PODS.path(arena.namespace, pod), body, MERGE) for pod in servers]
            await bare.load([Request("PATCH", view, body, MERGE), *pods], concurrency=_CONCURRENCY)
            told = arena.pods_that(lambda pod: pod.metadata.annotations.get(_BARE) == new)
            async with told as register:
                server, own = world.server_cpu_seconds(), cpu_seconds([bare.pid])
                begin = time.perf_counter()
                await bare.send()
                took = await register.holds(count) - begin
                run = Run(took, cpu_seconds([bare.pid]) - own, world.server_cpu_seconds() - server)
            await asyncio.to_thread(world.settle)
            return run

        await take_pairs(result, ours, by_hand, pairs=pairs)
        await arena.clear()
    return result
