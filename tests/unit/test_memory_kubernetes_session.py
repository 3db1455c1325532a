"""The session of the API server in memory: time, lost connections, interception, records, and kopf on it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from support.memory_kubernetes import Interceptor, MemorySession, Refusal
from unit.async_tests import virtual
from unit.memory_world import PODS, SERVER, Watcher, ask, make_kube, pod


def now():
    return round(asyncio.get_running_loop().time() - 1000.0, 3)


@virtual
async def test_memory_kubernetes_a_request_takes_its_latency_twice():
    """The server acts after one latency, the client gets the response after two; a watch one after the write."""
    kube = make_kube()
    watcher = Watcher(MemorySession(kube, latency=0.1), resourceVersion="1001", timeoutSeconds="5")
    following = asyncio.create_task(watcher.follow())
    await asyncio.sleep(1)
    request = asyncio.create_task(ask(MemorySession(kube, latency=0.5), "POST", PODS, pod()))
    await asyncio.sleep(0.49)
    before = kube.get("pods", "default", "p")
    await asyncio.sleep(0.02)
    after = kube.get("pods", "default", "p")
    await request
    answered = now()
    await following
    heard = watcher.times[0] - 1000.0
    assert (before, after["metadata"]["name"]) == (None, "p")
    assert (answered, round(heard, 2)) == (2.0, 1.6)


@virtual
async def test_memory_kubernetes_authorizers_reject_before_the_server_acts():
    kube = make_kube()

    def check(request):
        if request.verb != "list":
            raise Refusal(403, "Forbidden", f"{request.resource} is forbidden: {request.user} cannot {request.verb}")

    kube.authorize.append(check)
    session = MemorySession(kube)
    watcher = Watcher(session)
    await watcher.follow()
    created, listed = await ask(session, "POST", PODS, pod()), await ask(session, "GET", PODS)
    assert (created[0], created[1]["message"]) == (403, "pods is forbidden: operator cannot create")
    assert (listed[0], watcher.status, kube.revision) == (200, 403, 1001)


class Waits(Interceptor):
    async def before(self, request):
        del request
        await asyncio.sleep(100)


@virtual
async def test_memory_kubernetes_an_abandoned_watch_is_forgotten():
    """A closed response and a cancelled reader leave nothing on the server; the reader gets CancelledError."""
    kube = make_kube()
    wakers = kube.state.storages["pods"].wakers
    session = MemorySession(kube)
    kube.create("pods", "default", pod())
    response = await session.get(SERVER + PODS, params={"watch": "true"})
    first = await anext(response.content.iter_any())
    assert (first[:15], len(wakers)) == (b'{"type":"ADDED"', 1)
    response.close()
    assert wakers == {}
    following = asyncio.create_task(Watcher(session, resourceVersion="1002").follow())
    await asyncio.sleep(1)
    assert len(wakers) == 1
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert wakers == {}


@virtual
async def test_memory_kubernetes_time_outs_are_kept():
    timeout = aiohttp.ClientTimeout(total=30)
    with pytest.raises(TimeoutError):
        await ask(MemorySession(make_kube(), interceptor=Waits()), "GET", PODS, timeout=timeout)
    ends = [now()]
    silence = aiohttp.ClientTimeout(total=None, sock_read=75)
    for timeout in (silence, aiohttp.ClientTimeout(total=10)):
        watcher = Watcher(MemorySession(make_kube()), timeout=timeout, resourceVersion="1001")
        await watcher.follow()
        assert isinstance(watcher.end, TimeoutError)
        ends.append(now())
    # 75 s of silence never occur with a bookmark every minute.
    marks = {"resourceVersion": "1001", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
    watcher = Watcher(MemorySession(make_kube()), timeout=silence, **marks)
    await watcher.follow()
    assert watcher.end is None
    assert [round(one) for one in [*ends, now()]] == [30, 105, 115, 415]


@virtual
async def test_memory_kubernetes_closing_ends_a_watch_under_its_reader():
    """A closed session and lost connections end it with a connection error; a closed session sends no request."""
    kube, ends = make_kube(), []
    for act in ("lose_connections", "close"):
        session = MemorySession(kube)
        watcher = Watcher(session, resourceVersion="1001")
        following = asyncio.create_task(watcher.follow())
        await asyncio.sleep(1)
        if (done := getattr(session, act)()) is not None:
            await done
        await following
        ends.append((type(watcher.end), str(watcher.end), session.closed))
    lost = aiohttp.ClientConnectionError
    assert ends == [(lost, "Connection lost", False), (lost, "Connection closed", True)]
    assert kube.state.storages["pods"].wakers == {}
    with pytest.raises(RuntimeError, match="Session is closed"):
        session.get(SERVER)
