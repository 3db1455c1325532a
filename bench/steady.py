"""A crowd without changes, or only irrelevant ones: the operator's requests and costs."""

import asyncio

from bench.book import Result
from bench.cpu import cpu_seconds
from bench.creation import MEBIBYTE
from bench.crowd import crowd
from bench.stage import Stage
from tests.support.objects import PODS
from tests.support.rbac import OPERATOR_USER

_IDLE_SECONDS = 60.0
_QUIET_SECONDS = 0.5


async def rest(stage: Stage, name: str, runs: int) -> Result:
    """Count the operator's requests in 60 s without changes."""
    all_of_them = await crowd(stage)
    result = Result(name, facts={"pods": all_of_them.shape.total_tasks})
    world = stage.world
    for _ in range(runs):
        position = await asyncio.to_thread(world.audit.position)
        cpu = cpu_seconds([world.operator.pid])
        await asyncio.sleep(max(2.0, _IDLE_SECONDS * stage.scale))  # the measurement itself
        used = cpu_seconds([world.operator.pid]) - cpu
        requests = await asyncio.to_thread(world.audit.since, position, user=OPERATOR_USER)
        result.add(
            requests=len(requests),
            writes=sum(request.is_write for request in requests),
            cpu_s=used,
            rss_mib=world.operator.memory()[0] / MEBIBYTE,
        )
    return result


async def events(stage: Stage, name: str, runs: int) -> Result:
    """Measure the cost of an irrelevant event: each pod gets an annotation that the operator does not use."""
    all_of_them = await crowd(stage)
    arena, world = all_of_them.arena, stage.world
    pods = sorted(all_of_them.ready.since)
    result = Result(name, facts={"pods": len(pods)})
    for run in range(runs):
        position = await asyncio.to_thread(world.audit.position)
        cpu = cpu_seconds([world.operator.pid])
        patch = {"metadata": {"annotations": {"bench.example/run": str(run)}}}
        await arena.send_all([("PATCH", PODS.path(arena.namespace, pod), patch) for pod in pods], concurrency=16)
        await idle(world.operator.pid)
        used = cpu_seconds([world.operator.pid]) - cpu
        writes = await asyncio.to_thread(world.audit.writes, position, user=OPERATOR_USER)
        result.add(cpu_ms=used / len(pods) * 1000, writes=len(writes))
    return result


async def idle(pid: int) -> None:
    """Return when a process has used next to no processor time for a while."""
    seen = cpu_seconds([pid])
    quiet = 0.0
    while quiet < _QUIET_SECONDS:
        await asyncio.sleep(0.1)
        now = cpu_seconds([pid])
        quiet = quiet + 0.1 if now - seen < 0.001 else 0.0
        seen = now
