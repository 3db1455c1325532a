"""The sessions: pending writes, connections that end silently, and credentials that change."""

import asyncio
import os
import ssl

import aiohttp
import pytest
import uvloop
from support.async_tests import played
from support.small_server import SmallServer
from support.waiting import GUARD

from local_kubernetes.certificates import Authority
from tfcluster_operator.kube import connection
from tfcluster_operator.kube.client import Client

EVENTS = "/api/v1/namespaces/a/events"
HANGS = "/apis/tfcluster.dev/v1alpha1/tfclusters?watch=true"


@played
async def test_writes_under_way_are_counted():
    """``no_writes`` is set again only when the last write has its response; reads do not count."""
    server = SmallServer()
    async with server, connection.open_session(connection.Access(server.url)) as session:
        client = Client(session, server.url)
        read = asyncio.create_task(client.request("GET", "/api"))
        await asyncio.sleep(0)
        assert client.no_writes.is_set()
        await read
        writes = [asyncio.create_task(client.request("POST", EVENTS, body={"a": i})) for i in range(3)]
        await asyncio.sleep(0)
        assert not client.no_writes.is_set()
        await asyncio.wait_for(client.no_writes.wait(), GUARD)
        assert len(server.written) == 3
        await asyncio.gather(*writes)


@played
async def test_a_borrowed_session_leaves_the_lenders_connections_open():
    """Kopf closes the session that it gets: the lender's must continue."""
    server = SmallServer()
    access = connection.Access(server.url)
    async with server, connection.open_session(access) as session:
        async with connection.open_session(access, lender=session) as borrowed:
            await borrowed.get(server.url + "/api")
        assert (await session.get(server.url + "/api")).status == 200


@played
async def test_watches_leave_connections_to_requests():
    """An operator of many namespaces has hundreds of watches open, and still writes."""
    server = SmallServer()
    async with server, connection.open_session(connection.Access(server.url)) as session:
        watches = await asyncio.gather(*(session.get(server.url + HANGS) for _ in range(100)))
        async with asyncio.timeout(GUARD):
            assert (await session.post(server.url + EVENTS, json={"a": 1})).status == 200
        for watch in watches:
            watch.close()


def test_credentials_are_read_again_after_a_minute(tmp_path, monkeypatch):
    """At most a minute old, also while the folder cannot be read; so is the server's authority."""
    token, trusted = tmp_path / "token", tmp_path / "ca.crt"
    authorities = []
    for name in ("old", "new"):
        authority = Authority(tmp_path / name)
        authority.create()
        authorities.append(authority.certificate.read_text(encoding="ascii"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    now = 1000.0
    monkeypatch.setattr(connection.time, "monotonic", lambda: now)

    async def run() -> list[tuple[str, int]]:
        nonlocal now
        seen: list[tuple[str, int]] = []
        read = connection._FreshCredentials(tmp_path, context)

        async def handler(request):
            seen.append((request.headers["Authorization"], len(context.get_ca_certs())))

        async def ask() -> None:
            await read(type("Request", (), {"headers": {}})(), handler)

        with pytest.raises(aiohttp.ClientConnectionError, match="no credentials"):
            await ask()
        for text, authority, passed in (("first", 0, 0), ("second", 1, 59), ("second", 1, 2)):
            token.write_text(f"{text}\n", encoding="ascii")
            trusted.write_text(authorities[authority], encoding="ascii")
            now += passed
            await ask()
        token.unlink()
        now += 61
        await ask()
        return seen

    assert asyncio.run(run()) == [("Bearer first", 1), ("Bearer first", 1), *[("Bearer second", 2)] * 2]


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_connection_that_was_closed_behind_the_loops_back_ends_and_stands_in_nobodys_way(loop):
    """Its watch ends immediately and the next request succeeds, on a descriptor that no other connection has."""

    async def run() -> None:
        server = SmallServer()
        async with server, connection.open_session(connection.Access(server.url)) as session:
            watch = await session.get(server.url + HANGS)
            assert watch.connection is not None
            transport = watch.connection.transport
            assert transport is not None
            os.close(transport.get_extra_info("socket").fileno())
            async with asyncio.timeout(GUARD):
                answer = await session.get(server.url + "/api")
                with pytest.raises(aiohttp.ClientError):
                    await watch.content.read()
            assert answer.status == 200
            assert transport.is_closing()
            again = await asyncio.gather(*(session.get(server.url + "/api") for _ in range(5)))
            assert [one.status for one in again] == [200] * 5

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
