"""A reconcile of one large cluster: its processor time, and how long it blocks other requests."""

import asyncio
import http.client
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.arena import declare, opened
from bench.book import Result
from bench.cpu import cpu_seconds
from bench.crowd import passes_made
from bench.shapes import Shape
from bench.stage import Stage
from bench.steady import idle
from tests.support.objects import SERVICES
from tests.support.operator_process import OperatorProcess

SHAPE = Shape(1, 5000)
_FLIPS = 4
_EVERY_SECONDS = 0.005
#: The operator waits up to a second after a reconcile, so all changes within that time cause one reconcile.
_REST_SECONDS = 1.1


async def a_pass(stage: Stage, name: str, runs: int) -> Result:
    """Measure reconciles of 5,000 tasks: another client changes a label of their Service.

    Returns:
        The series ``cpu_ms`` (of the operator, a reconcile), ``blocked_ms`` (the longest wait of /healthz for its
        answer in a round; it is requested every 5 ms), ``blocked_at_rest_ms`` (the same while nothing happens: the part
        of the machine itself) and ``passes``, the number of reconciles.
    """
    shape = SHAPE.scaled(stage.scale)
    result = Result(name, facts={"tasks": shape.total_tasks})
    world, operator = stage.world, stage.world.operator
    world.fresh_operator()
    async with opened(world, shape.name) as arena, arena.ready_pods() as ready:
        await declare(arena, shape)
        await ready.holds(shape.total_tasks)
        await world.quiet()
        service = SERVICES.path(arena.namespace, world.objects.list(SERVICES, arena.namespace)[0]["metadata"]["name"])
        flips = itertools.count()

        async def cause_passes() -> None:
            for _ in range(_FLIPS):
                await arena.send("PATCH", service, {"metadata": {"labels": {"bench.example/flip": str(next(flips))}}})
                await asyncio.sleep(_REST_SECONDS)  # or two flips would cause one reconcile

        for _ in range(runs):
            before = passes_made(operator)
            await idle(operator.pid)
            cpu = cpu_seconds([operator.pid])
            await cause_passes()
            await idle(operator.pid)
            used = cpu_seconds([operator.pid]) - cpu
            made = passes_made(operator) - before
            # Separate from the above, because answering costs processor time, too.
            with _asking(operator) as waits:
                await cause_passes()
            with _asking(operator) as waits_at_rest:
                await asyncio.sleep(_FLIPS * _REST_SECONDS)  # the measurement itself
            result.add(
                cpu_ms=used / made * 1000,
                passes=made,
                blocked_ms=max(waits) * 1000,
                blocked_at_rest_ms=max(waits_at_rest) * 1000,
            )
    return result


@contextmanager
def _asking(operator: OperatorProcess) -> Iterator[list[float]]:
    """Request /healthz every 5 ms from a thread; the list gets the seconds of each answer."""
    waits: list[float] = []
    over = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", operator.health_port, timeout=60)
        while not over.wait(_EVERY_SECONDS):
            begin = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            waits.append(time.perf_counter() - begin)
        connection.close()

    thread = threading.Thread(target=ask, name="asking", daemon=True)
    thread.start()
    try:
        yield waits
    finally:
        over.set()
        thread.join()
