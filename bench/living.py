"""Measures what happens to a cluster that exists: suspending, deleting, and doing nothing."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

from bench import bare_client
from bench.arena import Arena, declare, opened, settled
from bench.shapes import Shape
from bench.world import World, session
from tests.support.objects import PODS, TFCLUSTERS
from tests.support.rbac import OPERATOR_USER

SHAPE = Shape(1, 300)


@dataclass
class Living:
    """The figures; one entry a run, times in seconds."""

    concurrency: int
    suspend: list[float] = field(default_factory=list)
    suspend_calls: list[int] = field(default_factory=list)
    bare_delete: list[float] = field(default_factory=list)
    delete: list[float] = field(default_factory=list)
    idle_seconds: float = 0.0
    idle_writes: int = 0
    idle_requests: int = 0
    idle_cpu_seconds: float = 0.0


async def measure(world: World, *, runs: int, idle_seconds: float, concurrency: int) -> Living:
    """Measure the life of a cluster of 300 tasks.

    Args:
        world: the control plane and the operator.
        runs: how often suspending and deleting are measured.
        idle_seconds: how long the operator is left alone.
        concurrency: how many DELETEs the bare client has under way.

    Returns:
        The figures.
    """
    figures = Living(concurrency)
    async with opened(world, "living") as arena:
        for _ in range(runs):
            await _suspend(arena, figures)
            await _delete(arena, figures)
        await declare(arena, SHAPE)
        await settled(arena, SHAPE)
        await asyncio.to_thread(world.audit.await_quiet, OPERATOR_USER)
        await _idle(arena, figures, idle_seconds)
        await arena.clear()
    return figures


async def _suspend(arena: Arena, figures: Living) -> None:
    """Suspend 300 tasks; then let the bare client delete as many pods, one request each."""
    await declare(arena, SHAPE)
    await settled(arena, SHAPE)
    name = SHAPE.manifests(arena.namespace)[0]["metadata"]["name"]
    position = await asyncio.to_thread(arena.world.audit.await_quiet, OPERATOR_USER)
    reached = arena.observer.reached(deleted=SHAPE.tasks)
    begin = time.perf_counter()
    await _set_suspend(arena, name, value=True)
    figures.suspend.append(await reached - begin)
    await asyncio.to_thread(arena.world.audit.await_quiet, OPERATOR_USER)
    calls = await asyncio.to_thread(arena.world.audit.since, position, user=OPERATOR_USER)
    figures.suspend_calls.append(len(calls))
    await _set_suspend(arena, name, value=False)
    await settled(arena, SHAPE)
    figures.bare_delete.append(await _bare_delete(arena, figures.concurrency))


async def _bare_delete(arena: Arena, concurrency: int) -> float:
    """Delete the pods under the nose of the operator, which is stopped meanwhile."""
    operator = arena.world.operator
    await asyncio.to_thread(operator.stop)
    pods = arena.world.objects.list(PODS, arena.namespace)
    paths = [PODS.path(arena.namespace, pod["metadata"]["name"]) for pod in pods]
    http, server = session(arena.world.bare_kubeconfig, connections=concurrency)
    async with http:
        reached = arena.observer.reached(deleted=len(paths))
        begin = time.perf_counter()
        await bare_client.delete_all(http, server, paths, concurrency=concurrency)
        took = await reached - begin
    await asyncio.to_thread(operator.start)
    await asyncio.to_thread(arena.world.audit.await_quiet, OPERATOR_USER)
    return took


async def _delete(arena: Arena, figures: Living) -> None:
    """Delete the TFCluster and wait for the garbage collector to delete all that it owns."""
    name = SHAPE.manifests(arena.namespace)[0]["metadata"]["name"]
    reached = arena.observer.reached(deleted=SHAPE.objects)
    begin = time.perf_counter()
    async with arena.admin.delete(f"{arena.server}{TFCLUSTERS.path(arena.namespace, name)}") as answer:
        assert answer.status == 200, await answer.text()
    figures.delete.append(await reached - begin)
    await arena.clear()


async def _idle(arena: Arena, figures: Living, seconds: float) -> None:
    world = arena.world
    position = await asyncio.to_thread(world.audit.position)
    cpu = world.operator.cpu_seconds()
    await asyncio.sleep(seconds)  # the measurement itself
    requests = await asyncio.to_thread(world.audit.since, position, user=OPERATOR_USER)
    figures.idle_seconds = seconds
    figures.idle_requests = len(requests)
    figures.idle_writes = sum(request.is_write for request in requests)
    figures.idle_cpu_seconds = world.operator.cpu_seconds() - cpu


async def _set_suspend(arena: Arena, name: str, *, value: bool) -> None:
    url = f"{arena.server}{TFCLUSTERS.path(arena.namespace, name)}"
    body = json.dumps({"spec": {"suspend": value}}).encode()
    headers = {"Content-Type": "application/merge-patch+json"}
    async with arena.admin.patch(url, data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
