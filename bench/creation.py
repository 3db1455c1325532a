"""Measures creation: the operator from the TFCluster's POST until all objects exist, and the bare client, in turns."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import bare_client
from bench.arena import Arena, declare, opened, settled
from bench.shapes import Shape
from bench.world import World, session
from tests.support.fault_proxy import FaultProxy
from tests.support.objects import CONFIG_MAPS
from tests.support.rbac import OPERATOR_USER

CONCURRENCIES = (16, 32, 64)
_MEBIBYTE = 2**20


@dataclass
class Creation:
    """The figures of one shape; one entry a run, times in seconds."""

    shape: Shape
    concurrency: int = 0
    bare: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    #: Of ``ours``, until the last TFCluster's POST was answered.
    declared: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    calls_by_kind: Counter[str] = field(default_factory=Counter)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_mebibytes: list[float] = field(default_factory=list)


async def measure(world: World, shape: Shape, *, runs: int, directory: Path) -> Creation:
    """Measure one shape.

    Args:
        world: the control plane and the operator.
        shape: what is made.
        runs: how often each side is measured.
        directory: for the recording proxy's kubeconfig.

    Returns:
        The figures.
    """
    figures = Creation(shape)
    async with opened(world, shape.name) as arena:
        posted = await _record(arena, shape, directory)
        await arena.clear()
        trials = {c: await _bare(arena, posted, shape, concurrency=c) for c in CONCURRENCIES}
        figures.concurrency = min(trials, key=lambda c: trials[c])
        world.fresh_operator()
        for run in range(runs):
            if run % 2:
                figures.bare.append(await _bare(arena, posted, shape, concurrency=figures.concurrency))
                await _ours(arena, figures)
            else:
                await _ours(arena, figures)
                figures.bare.append(await _bare(arena, posted, shape, concurrency=figures.concurrency))
    return figures


async def _record(arena: Arena, shape: Shape, directory: Path) -> list[tuple[str, bytes]]:
    """Let the operator make the shape once through a proxy that keeps its requests; it warms everything up, too."""
    operator = arena.world.operator
    if operator.running:
        operator.stop()
    proxy = FaultProxy(operator.kubeconfig, directory)
    try:
        operator.start(kubeconfig=proxy.kubeconfig)
        reached = arena.observer.reached(added=shape.objects)
        await declare(arena, shape)
        await reached
        await settled(arena, shape)
        operator.stop()
    finally:
        proxy.close()
    return proxy.posted


async def _ours(arena: Arena, figures: Creation) -> None:
    shape, world = figures.shape, arena.world
    position = await asyncio.to_thread(world.audit.position)
    cpu = world.operator.cpu_seconds()
    world.operator.forget_peak()
    reached = arena.observer.reached(added=shape.objects)
    begin = time.perf_counter()
    await declare(arena, shape)
    figures.declared.append(time.perf_counter() - begin)
    figures.ours.append(await reached - begin)
    await settled(arena, shape)
    figures.cpu_seconds.append(world.operator.cpu_seconds() - cpu)
    figures.peak_mebibytes.append(world.operator.memory()[1] / _MEBIBYTE)
    calls = await asyncio.to_thread(world.audit.since, position, user=OPERATOR_USER)
    figures.calls.append(len(calls))
    figures.calls_by_kind = Counter(f"{call.verb} {call.target}" for call in calls)
    await arena.clear()


async def _bare(arena: Arena, posted: Sequence[tuple[str, bytes]], shape: Shape, *, concurrency: int) -> float:
    owner = arena.world.objects.create(CONFIG_MAPS, arena.namespace, {"metadata": {"name": "owner"}})
    requests = bare_client.bodies_from(posted, namespace=arena.namespace, owner=owner)
    assert len(requests) == shape.objects, f"{len(requests)} bodies for {shape.objects} objects"
    http, server = session(arena.world.bare_kubeconfig, connections=concurrency)
    async with http:
        reached = arena.observer.reached(added=shape.objects)
        begin = time.perf_counter()
        await bare_client.post_all(http, server, requests, concurrency=concurrency)
        took = await reached - begin
    await arena.clear()
    return took
