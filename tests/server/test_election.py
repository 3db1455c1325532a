"""The election on a real API server: its responses to our requests, and the leader after a release and a crash."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import kopf
import pytest
from msgspec.structs import replace
from support.manifests import tfcluster
from support.objects import TFCLUSTERS, Kind
from support.operator_process import OperatorProcess
from support.waiting import eventually

from tfcluster_operator.kube import connection, election
from tfcluster_operator.kube.client import AlreadyExistsError, Client, ConflictError, NotFoundError
from tfcluster_operator.kube.election import Lease

LEASES = Kind("coordination.k8s.io/v1", "leases")


def with_lease(
    kubeconfig: str, namespace: str, story: Callable[[Lease], Coroutine[Any, Any, None]], monkeypatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    found = kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())
    access = connection.Access(found.server, found.as_ssl_context(), found.as_http_headers())

    async def run() -> None:
        async with connection.open_session(access) as session:
            await story(Lease(Client.once(session, access.server), namespace, "x"))

    asyncio.run(run())


def test_the_server_keeps_what_is_written(control_plane, namespace, objects, monkeypatch):
    async def story(ours: Lease) -> None:
        assert await ours.read() is None
        created = await ours.write(election.claim(None, me="me", now=1_700_000_000.25))
        assert await ours.read() == created
        assert (created.holder, created.duration, created.transitions) == ("me", 15, 0)
        assert created.renewed == "2023-11-14T22:13:20.250000Z"
        objects.patch(LEASES, namespace, "x", {"metadata": {"labels": {"a": "b"}}})
        seen = await ours.read()
        renewed = await ours.write(election.claim(seen, me="me", now=1_700_000_002.0))
        assert renewed.acquired == created.renewed
        assert renewed.renewed == "2023-11-14T22:13:22.000000Z"
        freed = await ours.write(replace(renewed, holder="", duration=1))
        assert (freed.holder, freed.duration) == ("", 1)
        taken = await ours.write(election.claim(freed, me="other", now=1_700_000_004.0))
        assert (taken.holder, taken.transitions) == ("other", 1)

    with_lease(str(control_plane.kubeconfig), namespace, story, monkeypatch)
    assert objects.get(LEASES, namespace, "x")["metadata"]["labels"] == {"a": "b"}


def test_server_rejects_the_second_lease_writer(control_plane, namespace, objects, monkeypatch):
    async def story(ours: Lease) -> None:
        first = election.claim(None, me="me", now=0)
        created = await ours.write(first)
        with pytest.raises(AlreadyExistsError):
            await ours.write(first)
        await ours.write(election.claim(created, me="other", now=1))
        with pytest.raises(ConflictError):
            await ours.write(election.claim(created, me="me", now=2))
        old = await ours.read()
        objects.delete(LEASES, namespace, "x")
        with pytest.raises(NotFoundError):
            await ours.write(old)
        again = await ours.write(replace(first, version=""))
        with pytest.raises(ConflictError):
            await ours.write(old)
        assert await ours.read() == again

    with_lease(str(control_plane.kubeconfig), namespace, story, monkeypatch)


@pytest.fixture
def two(control_plane, admin, namespace, tmp_path: Path) -> Iterator[tuple[OperatorProcess, OperatorProcess]]:  # noqa: ARG001 - wants the kind
    pair = tuple(OperatorProcess(kubeconfig=control_plane.kubeconfig, log=tmp_path / f"{i}.log") for i in range(2))
    arguments = ("--namespace", namespace, "--leader-election", "--lease-namespace", namespace)
    try:
        pair[0].start(arguments=arguments)
        eventually(lambda: "leading as" in pair[0].tail(), what="the first leads")
        pair[1].start(arguments=arguments)
        yield pair
    finally:
        for process in pair:
            process.kill()


def becomes_leader(process: OperatorProcess) -> str:
    log = eventually(process.tail, lambda log: "leading as" in log, what="the standby leads")
    return re.search(r"leading as (\S+)", log)[1].rstrip('",')


def held(world) -> dict[str, Any]:
    return world.demand(LEASES, "tfcluster-operator")["spec"]


def test_standby_is_ready_and_follows_a_release(two, world, objects):
    """A standby is ready while another leads; after SIGTERM the leader exits with 0, and the standby leads and acts."""
    leader, standby = two
    assert standby.readiness() == "200"
    assert "leading as" not in standby.tail()
    before = held(world)
    assert leader.stop() == 0
    assert held(world)["holderIdentity"] != before["holderIdentity"]
    assert becomes_leader(standby) == held(world)["holderIdentity"]
    assert held(world)["leaseTransitions"] == before.get("leaseTransitions", 0) + 1
    assert "the lease is released" in leader.tail()
    objects.create(TFCLUSTERS, world.namespace, tfcluster("c").job("worker").build())
    eventually(world.pods, what="the standby makes the pod")


def test_standby_follows_a_crash_when_the_lease_has_ended(two, world):
    """After SIGKILL the Lease expires; the standby does not lead before that, and logs no error."""
    leader, standby = two
    leader.kill()
    before = held(world)
    assert becomes_leader(standby) == held(world)["holderIdentity"] != before["holderIdentity"]
    ended = datetime.fromisoformat(before["renewTime"]) + timedelta(seconds=before["leaseDurationSeconds"])
    assert datetime.fromisoformat(held(world)["acquireTime"]) >= ended
    assert not re.search(r"Traceback|ERROR", standby.tail())
