"""The reconciler of one TFCluster over the server of http_world, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from support.virtual_time import run_in_virtual_time
from unit.http_world import HttpWorld, Refusal, Request
from unit.in_memory import NOW, InMemoryWorld, make_body, make_cluster

from tfcluster_operator.engine.reconcile import Reconciler
from tfcluster_operator.engine.work_queue import NextPart, RetryLater
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.clock import Clock
from tfcluster_operator.kube.clusters import Parents
from tfcluster_operator.kube.limiter import AdaptiveLimiter
from tfcluster_operator.objects.resolver_copy import ResolverArchive

NO_ARCHIVE = ResolverArchive(b"zip")
QUOTA = Refusal(403, "Forbidden", "exceeded quota: objects")
WEBHOOK = Refusal(500, "InternalError", 'failed calling webhook "policy.example.test": connection refused')
JOBS = {"chief": 1, "ps": 1, "worker": 2}
KEY = ("default", "demo")

Refuse = Callable[[Request], Refusal | None]


def when(refusal: Refusal, *briefs: str) -> Refuse:
    """Reject requests whose brief starts with one of these."""
    return lambda request: refusal if request.brief.startswith(briefs) else None


def make_client(session: HttpWorld, *, fence: Callable[[], None] | None = None) -> Client:
    """Create the operator's client on a session, with the clock of the running loop."""
    loop = asyncio.get_running_loop()
    clock = Clock(wall=lambda: NOW + loop.time() - 1000.0, elapsed=loop.time)
    limiter = AdaptiveLimiter(elapsed=clock.elapsed)
    session_: Any = session
    return Client(session_, "https://server.example.test", limiter, clock=clock, fence=fence)


class Operator:
    """The reconciler of one TFCluster, and the results of its reconciles."""

    def __init__(self, session: HttpWorld) -> None:
        client = make_client(session)
        self.session = session
        self.parents = Parents(client)
        self.reconciler = Reconciler(client, self.parents, session.world.stores, NO_ARCHIVE)
        self.clock = client.clock

    async def one_pass(self) -> float | NextPart | RetryLater | None:
        """Feed the newest TFCluster and every child to the watch, then reconcile."""
        if (body := self.session.clusters.get("demo")) is not None and self.parents.put(body):
            self.reconciler.heard_of(KEY, body["metadata"]["uid"])
        self.session.world.now = self.clock.wall()
        self.session.world.observe(make_cluster())
        try:
            return await self.reconciler.reconcile(KEY)
        except (NextPart, RetryLater) as error:
            return error

    async def passes(self, count: int, *, every: float = 1.5) -> list[float | NextPart | RetryLater | None]:
        """Reconcile several times, with this interval in seconds."""
        results = []
        for _ in range(count):
            results.append(await self.one_pass())
            await asyncio.sleep(every)
        return results

    async def come_up(self) -> None:
        for _ in range(3):
            await self.one_pass()
            self.session.world.all_pods_run()
            await asyncio.sleep(2)


def passes(session: HttpWorld, count: int) -> list[float | NextPart | RetryLater | None]:
    async def scenario() -> list[float | NextPart | RetryLater | None]:
        return await Operator(session).passes(count)

    return run_in_virtual_time(scenario())


def ready(session: HttpWorld) -> tuple[str, str, str, int]:
    (found,) = [one for one in session.clusters["demo"]["status"]["conditions"] if one["type"] == "Ready"]
    return found["status"], found["reason"], found["message"], found["observedGeneration"]


def declared(refuse: Refuse = lambda _: None, **spec: Any) -> HttpWorld:
    session = HttpWorld(InMemoryWorld(), refuse)
    session.world.version = 10
    session.clusters["demo"] = make_body(JOBS, generation=3, **spec)
    return session
