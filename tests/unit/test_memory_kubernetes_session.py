"""The session of the API server in memory: time, lost connections, interception, records, and kopf on top of it."""

from __future__ import annotations

import asyncio

import aiohttp
import kopf
import pytest
from support.memory_kubernetes import Answer, ConnectionLost, Interceptor, MemorySession, Record, Refusal
from unit.async_tests import virtual
from unit.memory_world import PODS, SERVER, Watcher, ask, make_kube, named, pod


def now():
    return round(asyncio.get_running_loop().time() - 1000.0, 3)


@virtual
async def test_memory_kubernetes_a_request_takes_its_latency_twice():
    """The server acts after one latency, the client knows after two; a watch hears one after the write."""
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
async def test_memory_kubernetes_records_every_request():
    kube = make_kube()
    session = MemorySession(kube, user="me", latency=0.0)
    await ask(session, "POST", PODS, pod(), params={"fieldManager": "m"})
    await ask(
        session,
        "PATCH",
        f"{PODS}/p/status",
        {"status": {}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    await ask(session, "GET", "/api/v1/pods?labelSelector=a")
    await ask(session, "DELETE", f"{PODS}/nobody")
    await Watcher(session, resourceVersion="1001", timeoutSeconds="1").follow()
    records = kube.requests
    assert isinstance(records[0], Record)
    assert [one[1:] for one in records] == [
        ("me", "create", "pods", "", "default", "p", 201),
        ("me", "patch", "pods", "status", "default", "p", 200),
        ("me", "list", "pods", "", "", "", 200),
        ("me", "delete", "pods", "", "default", "nobody", 404),
        ("me", "watch", "pods", "", "default", "", 200),
    ]


@virtual
async def test_memory_kubernetes_authorizers_refuse_before_the_server_acts():
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


class Plan(Interceptor):
    """Does to the first create what a test wants."""

    def __init__(self, **what):
        self.what = what

    async def _do(self, moment, request):
        if request.verb == "create" and moment in self.what:
            done = self.what.pop(moment)
            if isinstance(done, Exception):
                raise done
            return done
        return None

    async def before(self, request):
        return await self._do("before", request)

    async def after(self, request, answer):
        return await self._do("after", request) or answer


@pytest.mark.parametrize(
    ("plan", "outcome", "revision"),
    [
        ({"before": ConnectionLost("reset")}, "reset", 1001),
        ({"after": ConnectionLost()}, "Connection lost", 1002),
        ({"before": Answer.refusing(Refusal(429, "TooManyRequests", "later", retry_after=3))}, 429, 1001),
        ({"after": Answer(status=502, body=b"bad gateway")}, 502, 1002),
        ({}, 201, 1002),
    ],
    ids=["lost before", "lost after", "answered before", "answered after", "left alone"],
)
@virtual
async def test_memory_kubernetes_an_interceptor_disturbs_before_and_after_the_commit(plan, outcome, revision):
    """Before it the server never sees the request; after it the write is done, whatever the client hears."""
    kube = make_kube()
    try:
        heard, _ = await ask(MemorySession(kube, interceptor=Plan(**plan)), "POST", PODS, pod())
    except aiohttp.ClientConnectionError as error:
        heard = str(error)
    assert (heard, kube.revision, len(kube.requests)) == (outcome, revision, 1)


class Lines(Interceptor):
    """Disturbs the lines of a watch by the name that is in them."""

    async def line(self, request, line):
        del request
        if b'"drop"' in line:
            return ()
        if b'"twice"' in line:
            return (line, line)
        if b'"late"' in line:
            await asyncio.sleep(30)
        if b'"break"' in line:
            raise ConnectionLost("broken")
        return (line,)


class StreamedLines(Interceptor):
    """Disturbs lines as an async generator does."""

    async def line(self, request, line):
        del request
        yield line
        await asyncio.sleep(1)
        yield line


@virtual
async def test_memory_kubernetes_an_interceptor_disturbs_the_lines_of_a_watch():
    """It drops, doubles, delays and breaks off; what comes after a late line is later still."""
    kube = make_kube()
    watcher = Watcher(MemorySession(kube, interceptor=Lines(), latency=0.0), resourceVersion="1001")
    following = asyncio.create_task(watcher.follow())
    await asyncio.sleep(1)
    for name in ("drop", "twice", "late", "last", "break", "never"):
        kube.create("pods", "default", pod(name))
    await following
    other = Watcher(MemorySession(kube, interceptor=StreamedLines()), resourceVersion="1006", timeoutSeconds="9")
    await other.follow()
    assert [name for _, name in watcher.heard] == ["twice", "twice", "late", "last"]
    assert [round(time - 1000) for time in watcher.times] == [1, 1, 31, 31]
    assert (type(watcher.end), str(watcher.end)) == (aiohttp.ClientConnectionError, "broken")
    assert [name for _, name in other.heard] == ["never", "never"]


class Waits(Interceptor):
    async def before(self, request):
        del request
        await asyncio.sleep(100)


@virtual
async def test_memory_kubernetes_an_abandoned_watch_is_forgotten():
    """A closed response and a reader that is cancelled cost the server nothing; who cancels gets just that."""
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


@pytest.mark.parametrize(
    ("method", "path", "content", "expected"),
    [
        ("PUT", PODS, "application/json", (405, "MethodNotAllowed")),
        ("POST", f"{PODS}/p", "application/json", (405, "MethodNotAllowed")),
        ("PATCH", f"{PODS}/p", "text/plain", (415, "UnsupportedMediaType")),
        ("PATCH", f"{PODS}/p", "application/merge-patch+json", (200, None)),
        ("GET", "/api/v1/nothings", "", (404, "NotFound")),
        ("GET", f"{PODS}/p/nothing", "", (404, "NotFound")),
        ("GET", f"{PODS}?resourceVersion=x", "", (400, "BadRequest")),
        ("GET", f"{PODS}?continue=x", "", (400, "BadRequest")),
    ],
)
@virtual
async def test_memory_kubernetes_answers_what_it_does_not_serve(method, path, content, expected):
    kube = make_kube()
    kube.create("pods", "default", pod())
    body = {"metadata": {"labels": {"a": "b"}}} if content else None
    status, answer = await ask(MemorySession(kube), method, path, body, headers={"Content-Type": content})
    assert (status, answer.get("reason")) == expected


@virtual
async def test_memory_kubernetes_takes_json_patches():
    """Tests, additions, replacements and removals in order; one that does not fit is refused whole."""

    async def patch(session, *operations):
        content = {"Content-Type": "application/json-patch+json"}
        return await ask(session, "PATCH", f"{PODS}/p", list(operations), headers=content)

    kube = make_kube()
    kube.create("pods", "default", pod(labels={"a/b": "1", "c": "2"}))
    session = MemorySession(kube)
    done = await patch(
        session,
        {"op": "test", "path": "/metadata/labels/a~1b", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/a~1b", "value": "3"},
        {"op": "remove", "path": "/metadata/labels/c"},
        {"op": "add", "path": "/metadata/finalizers", "value": []},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x/y"},
    )
    refused = await patch(
        session,
        {"op": "remove", "path": "/metadata/labels/a~1b"},
        {"op": "test", "path": "/metadata/labels/c", "value": "2"},
    )
    metadata = kube.get("pods", "default", "p")["metadata"]
    assert (done[0], refused[0]) == (200, 422)
    assert (metadata["labels"], metadata["finalizers"]) == ({"a/b": "3"}, ["x/y"])


@virtual
async def test_memory_kubernetes_carries_kopf():
    seen = []
    kube = make_kube()
    session = MemorySession(kube, user="kopf", latency=0.001)
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True

    @kopf.on.login(registry=registry)
    async def login(**_):
        return kopf.AiohttpSession(server=SERVER, aiohttp_session=session)

    @kopf.on.event("tfcluster.dev", "v1alpha1", "tfclusters", registry=registry)
    async def take(type, name, **_):  # noqa: A002 - kopf's own argument
        seen.append((type, name))

    kube.create("tfclusters", "default", {**named("a"), "spec": {}})
    stop = asyncio.Event()
    running = asyncio.create_task(kopf.operator(registry=registry, settings=settings, clusterwide=True, stop_flag=stop))
    await asyncio.sleep(10)
    kube.create("tfclusters", "default", {**named("b"), "spec": {}})
    await asyncio.sleep(1)
    session.lose_connections()
    await asyncio.sleep(1)
    kube.delete("tfclusters", "default", "a")
    await asyncio.sleep(10)
    stop.set()
    await running
    assert seen == [(None, "a"), ("ADDED", "b"), ("DELETED", "a")]


@virtual
async def test_memory_kubernetes_a_refusal_carries_its_retry_after():
    """As a header, and in the details of the Status."""
    refusing = Plan(before=Answer.refusing(Refusal(429, "TooManyRequests", "later", retry_after=3)))
    async with MemorySession(make_kube(), interceptor=refusing).request("POST", SERVER + PODS, json=pod()) as response:
        header, body = response.headers["Retry-After"], await response.json()
    assert (header, body["details"]) == ("3", {"retryAfterSeconds": 3})


@virtual
async def test_memory_kubernetes_time_outs_are_kept():
    """A request that takes longer than ``total`` and a watch that is silent for ``sock_read`` time out."""
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
    # 75 s of silence never come where a bookmark comes every minute.
    marks = {"resourceVersion": "1001", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
    watcher = Watcher(MemorySession(make_kube()), timeout=silence, **marks)
    await watcher.follow()
    assert watcher.end is None
    assert [round(one) for one in [*ends, now()]] == [30, 105, 115, 415]


@virtual
async def test_memory_kubernetes_closing_ends_a_watch_under_its_reader():
    """A closed session and lost connections end it with a connection error; a closed session makes no request."""
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


@virtual
async def test_memory_kubernetes_tells_what_it_serves():
    kube = make_kube()
    session = MemorySession(kube)
    for path, key, expected in (
        ("/version", "gitVersion", "v1.37.1-memory"),
        ("/api", "versions", ["v1"]),
        ("/api/v1", "groupVersion", "v1"),
        ("/apis/tfcluster.dev/v1alpha1", "kind", "APIResourceList"),
    ):
        assert (await ask(session, "GET", path))[1][key] == expected
    assert (await ask(session, "GET", "/apis/nowhere/v1"))[1] == "404 page not found\n"
    groups = ["networking.k8s.io", "policy", "scheduling.k8s.io", "kueue.x-k8s.io", "coordination.k8s.io"]
    assert [one["name"] for one in (await ask(session, "GET", "/apis"))[1]["groups"]] == [*groups, "tfcluster.dev"]
    kube.uninstall("tfclusters")
    assert [one["name"] for one in (await ask(session, "GET", "/apis"))[1]["groups"]] == groups
