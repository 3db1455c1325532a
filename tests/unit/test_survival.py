"""Other actors in the simulated world, against the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from simulation import dialect
from simulation.dialect import CLUSTER, NAMESPACE, OPERATOR
from simulation.workloads import job, ready
from simulation.world import World
from support.memory_kubernetes import Answer
from support.virtual_time import run_in_virtual_time
from unit.async_tests import simulated, within
from unit.http_world import HttpWorld
from unit.in_memory import NOW, InMemoryWorld, make_body, make_cluster

from tfcluster_operator.engine.reconcile import Reconciler
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.clock import Clock
from tfcluster_operator.kube.clusters import Parents
from tfcluster_operator.kube.limiter import AdaptiveLimiter
from tfcluster_operator.objects.resolver_copy import ResolverArchive

#: Seconds until a removed obstacle no longer blocks anything.
_SOON = 10.0


in_world = within(simulated)


def said(world: World, kind: str) -> tuple[Any, Any]:
    """Return the status and the reason of a condition of the cluster."""
    found = dialect.condition(world.cluster(), kind)
    return found.get("status"), found.get("reason")


def deletions(world: World, pod: str) -> int:
    """Count the operator's requests to delete a pod."""
    return sum(
        one.user == OPERATOR and (one.verb, one.resource, one.name) == ("delete", "pods", pod)
        for one in world.kube.requests
    )


@in_world
async def test_forced_deletion_is_asked_for_once(world: World):
    """A finalizer keeps the pod nevertheless: the status says so, and the request is not repeated."""
    pod = f"{CLUSTER}-worker-0"
    world.declare({"jobs": {"worker": job(1)}, "forceDeleteAfterSeconds": 5})
    assert await world.await_quiet(ready, _SOON)
    change = {"metadata": {"finalizers": ["example.com/keep"]}}
    world.kube.patch("pods", NAMESPACE, pod, change, user="somebody")
    world.nodes.kill(world.pods()[0]["spec"]["nodeName"])
    world.remove("pods", pod)
    await world.await_silence(300.0)
    assert (said(world, "Ready"), deletions(world, pod)) == (("False", "StuckTerminating"), 1)
    world.kube.patch("pods", NAMESPACE, pod, {"metadata": {"finalizers": None}}, user="somebody")
    assert await world.await_quiet(ready, _SOON)


class _NotingLimiter(AdaptiveLimiter):
    """Records of each request whether it waits behind those that create clusters."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.urgencies: list[bool] = []

    @asynccontextmanager
    async def slot(self, *, urgent: bool = True) -> AsyncIterator[None]:
        self.urgencies.append(urgent)
        async with super().slot(urgent=urgent):
            yield


def test_evidence_waits_for_no_other_cluster():
    """The record before a deletion has priority over other clusters' creations; a mere report does not."""

    async def pass_over(world: InMemoryWorld, cluster: dict[str, Any]) -> list[tuple[str, bool]]:
        loop = asyncio.get_running_loop()
        clock = Clock(wall=lambda: NOW + loop.time() - 1000.0, elapsed=loop.time)
        session, limiter = HttpWorld(world), _NotingLimiter(elapsed=clock.elapsed)
        session.clusters["demo"] = cluster
        client = Client(session, "https://server.example.test", limiter, clock=clock)  # type: ignore[arg-type]  # it is a session in all that is asked of it
        parents = Parents(client)
        reconciler = Reconciler(client, parents, world.stores, ResolverArchive(b"zip"))
        parents.put(cluster)
        world.observe(make_cluster())
        await reconciler.reconcile(("default", "demo"))
        return [
            (request.brief, urgent)
            for request, urgent in zip(session.requests, limiter.urgencies, strict=True)
            if request.subresource == "status"
        ]

    def body() -> dict[str, Any]:
        return make_body({"worker": 1}, resolver={"delivery": "None"})

    settled = InMemoryWorld()
    settled.version = 10
    settled.settle(make_cluster({"worker": 1}, resolver={"delivery": "None"}))
    settled.all_pods_run()
    assert run_in_virtual_time(pass_over(settled, body())) == [("PATCH tfclusters demo status", False)]

    settled.pod_ends("demo-worker-0", "Failed")
    assert run_in_virtual_time(pass_over(settled, body()))[0] == ("PATCH tfclusters demo status", True)


@pytest.mark.parametrize(("method", "kind"), [("GET", "pods"), ("POST", "pods"), ("PATCH", "tfclusters")])
@in_world
async def test_page_of_a_proxy_is_an_outage(world: World, method, kind):
    """An HTML response is not from the API server: the request is retried, and the operator does not exit."""
    world.declare({"jobs": {"worker": job(1)}})
    assert await world.await_quiet(ready, _SOON)
    real, starts = world.faults.before, world.operator.starts

    async def before(request: Any) -> Any:
        if request.method == method and kind in request.path:
            return Answer(status=200, body=b"<html>Maintenance</html>", headers={"Content-Type": "text/html"})
        return await real(request)

    world.faults.before = before
    world.operator.lose_connections()
    world.edit({"jobs": {"worker": {"replicas": 2}}})
    await asyncio.sleep(60.0)
    world.faults.before = real
    assert await world.await_quiet(lambda world: ready(world) and len(world.pods()) == 2, 120.0)
    assert (world.operator.starts, world.operator.deaths) == (starts, [])
