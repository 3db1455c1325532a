"""An hour of churn in real time: clusters come, change, lose pods and go, and the operator must not wear out."""

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.arena import Arena, opened
from bench.book import Result
from bench.cpu import cpu_seconds
from bench.creation import MEBIBYTE
from bench.shapes import Shape
from bench.stage import Stage
from tests.support.objects import PODS, TFCLUSTERS
from tests.support.rbac import OPERATOR_USER

_SECONDS = 3600.0
_POPULATION = Shape(100, 5)
_ROUND_SECONDS = 60.0
_TRACEBACK = b"Traceback (most recent call last)"


async def soak(stage: Stage, name: str, runs: int) -> Result:
    """Stir a population of TFClusters on simulated nodes, and look once a minute.

    Returns:
        The series ``rss_mib``, ``actions``, ``writes`` and ``cpu_s``, one reading a minute; ``growth``: the median of
        resident memory in the last quarter over that in the second one, ``tracebacks`` in the log, and
        ``left_behind``: TFClusters whose tasks were not all ready a minute after the end.  One reading each a run.
    """
    world = stage.world
    shape = _POPULATION.scaled(stage.scale)
    result = Result(name, facts={"clusters": shape.clusters, "hours": runs * _SECONDS * stage.scale / 3600})
    for run in range(runs):
        begun = len(result.series.get("rss_mib", ()))
        world.fresh_operator()
        log_begin = world.operator.log.stat().st_size
        async with opened(world, f"soak-{run}") as arena:
            await _stir(arena, shape, result, seconds=_SECONDS * stage.scale)
            result.add(left_behind=await _left_behind(arena))
            await arena.clear()
        result.add(
            growth=growth(result.series["rss_mib"][begun:]),
            tracebacks=world.operator.log.read_bytes()[log_begin:].count(_TRACEBACK),
        )
    return result


def growth(readings: Sequence[float]) -> float:
    """Divide the median of the last quarter by that of the second: in the first, caches fill."""
    quarter = -(-len(readings) // 4)
    return statistics.median(readings[-quarter:]) / statistics.median(readings[quarter : 2 * quarter] or readings)


async def _stir(arena: Arena, shape: Shape, result: Result, *, seconds: float) -> None:
    world, operator = arena.world, arena.world.operator
    manifests = shape.manifests(arena.namespace)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin, actions = time.monotonic(), 0
        position = await asyncio.to_thread(world.audit.position)
        cpu = cpu_seconds([operator.pid])
        while time.monotonic() < min(begin + _ROUND_SECONDS, end):
            await _act(arena, random.choice(manifests), random.random())
            actions += 1
            await asyncio.sleep(random.uniform(0.0, 0.4))  # users wait between actions
        writes = await asyncio.to_thread(world.audit.writes, position, user=OPERATOR_USER)
        result.add(
            rss_mib=operator.memory()[0] / MEBIBYTE,
            actions=actions,
            writes=len(writes),
            cpu_s=cpu_seconds([operator.pid]) - cpu,
        )
        print(f"  {end - time.monotonic():.0f} s left, {result.series['rss_mib'][-1]:.1f} MiB", file=sys.stderr)


async def _act(arena: Arena, manifest: dict[str, Any], chance: float) -> None:
    """Do one random action of users or nodes on a TFCluster; a missing TFCluster is created."""
    path = TFCLUSTERS.path(arena.namespace)
    name = manifest["metadata"]["name"]
    found = await arena.find(f"{path}/{name}")
    if found is None:
        await arena.send("POST", path, manifest, content="application/json")
    elif chance < 0.3:
        replicas = random.randint(1, 8)
        await arena.send("PATCH", f"{path}/{name}", {"spec": {"jobs": {"worker": {"replicas": replicas}}}})
    elif chance < 0.5:
        suspend = not found["spec"].get("suspend", False)
        await arena.send("PATCH", f"{path}/{name}", {"spec": {"suspend": suspend}})
    elif chance < 0.7:
        await arena.find(f"{path}/{name}", method="DELETE")
    else:
        selector = f"?labelSelector=tfcluster.dev/cluster={name}"
        pods = (await arena.send("GET", PODS.path(arena.namespace) + selector))["items"]
        for pod in random.sample(pods, min(2, len(pods))):
            await arena.find(f"{PODS.path(arena.namespace, pod['metadata']['name'])}", method="DELETE")


async def _left_behind(arena: Arena) -> int:
    """Count the TFClusters whose status does not have the declared state within a minute."""
    path = TFCLUSTERS.path(arena.namespace)
    end = time.monotonic() + _ROUND_SECONDS
    while True:
        clusters = (await arena.send("GET", path))["items"]
        wrong = sum(not _as_declared(cluster) for cluster in clusters)
        if not wrong or time.monotonic() > end:
            return wrong
        await asyncio.sleep(1.0)


def _as_declared(cluster: dict[str, Any]) -> bool:
    suspended = cluster["spec"].get("suspend", False)
    declared = sum(0 if suspended else job["replicas"] for job in cluster["spec"]["jobs"].values())
    return bool(declared == sum(job.get("ready", 0) for job in cluster.get("status", {}).get("jobs", {}).values()))
