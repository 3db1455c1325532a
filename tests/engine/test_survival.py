"""Other actors in the simulated world, against the real engine."""

import asyncio
from typing import Any

import pytest
from simulation import dialect
from simulation.dialect import CLUSTER, NAMESPACE, OPERATOR
from simulation.workloads import job, ready
from simulation.world import World
from support.async_tests import in_world
from support.memory_kubernetes import Answer, Refusal

#: Seconds until a removed obstacle no longer blocks anything.
_SOON = 10.0


def said(world: World, kind: str) -> tuple[Any, Any]:
    found = dialect.condition(world.cluster(), kind)
    return found.get("status"), found.get("reason")


def deletions(world: World, pod: str) -> int:
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


@in_world
async def test_missing_permission_to_list_a_kind_is_reported_until_it_is_granted(world: World):
    """A cluster waits with the server's message; once the permission is granted, it starts."""
    told = 'pods is forbidden: User "operator" cannot list resource "pods"'

    def check(request: Any) -> None:
        if (request.user, request.verb, request.resource) == (OPERATOR, "list", "pods"):
            raise Refusal(403, "Forbidden", told)

    world.kube.authorize.append(check)
    await world.operator.restart()
    world.declare({"jobs": {"worker": job(1)}})
    await asyncio.sleep(30.0)
    assert said(world, "Ready") == ("False", "Rejected")
    assert told in dialect.condition(world.cluster(), "Ready")["message"]
    assert world.pods() == []
    world.kube.authorize.remove(check)
    assert await world.await_quiet(ready, 60.0)
