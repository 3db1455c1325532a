"""kopf's watch of TFClusters, with the real kopf and a small API server: it recovers from every interruption.

The server and the watch share a loop in virtual time, so no test waits.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.async_tests import played
from support.small_server import SmallServer
from support.waiting import GUARD

from tfcluster_operator import kopf_watch
from tfcluster_operator.kopf_watch import KopfWatch
from tfcluster_operator.kube import connection
from tfcluster_operator.kube.client import Clock
from tfcluster_operator.kube.clusters import Census


def now() -> float:
    return asyncio.get_running_loop().time()


CLOCK = Clock(wall=now, elapsed=now)


class Ear:
    """Receives the watch's events; ``alive`` are the objects that an engine would consider existing."""

    def __init__(self) -> None:
        self.events: list[tuple[str | None, str]] = []
        self.counts: list[tuple[str | None, set[str]]] = []
        self._alive: dict[str, tuple[str, int]] = {}

    @property
    def alive(self) -> set[str]:
        return set(self._alive)

    def cluster_event(self, kind: str | None, body: Mapping[str, Any]) -> None:
        name = body["metadata"]["name"]
        if name == "unreadable":
            raise ValueError("nobody can read this")
        self.events.append((kind, name))
        self._alive[name] = body["metadata"]["namespace"], int(body["metadata"]["resourceVersion"])
        if kind == "DELETED":
            del self._alive[name]

    def clusters_listed(self, namespace: str | None, counted: Census) -> None:
        self.counts.append((namespace, counted.uids))
        for name, (of, version) in list(self._alive.items()):
            if namespace in {None, of} and version <= counted.version and f"uid-of-{name}" not in counted.uids:
                del self._alive[name]


class Scene:
    """A server, a session, and the watches of some namespaces."""

    def __init__(self, server: SmallServer, session: Any, namespaces: tuple[str | None, ...]) -> None:
        self.server = server
        self.session = session
        self.ear = Ear()
        self.signalled = asyncio.Event()
        access = connection.Access(server.url)
        self.watches = [
            KopfWatch(access, session, namespace, self.ear, own_signals=self.own_signals, clock=CLOCK)
            for namespace in namespaces
        ]

    def own_signals(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self.signalled.set)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.signalled.set)


async def until(holds: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(GUARD):
            while not holds():  # noqa: ASYNC110 - what is awaited has no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {GUARD} s: {what}") from None


@asynccontextmanager
async def scene(server: SmallServer, *namespaces: str | None) -> AsyncIterator[Scene]:
    async with server, connection.open_session(connection.Access(server.url)) as session:
        found = Scene(server, session, namespaces or (None,))
        others = asyncio.all_tasks()
        runs = [asyncio.create_task(watch.run()) for watch in found.watches]
        yield found
        for run in runs:
            assert not run.done()
            run.cancel()
        await asyncio.wait(runs)
        left = {task.get_name() for task in asyncio.all_tasks() - others if "small" not in repr(task)}
        left = {name for name in left if name.startswith(("watcher", "worker", "kopf", "resource", "multi"))}
        assert left == set(), "kopf leaves tasks behind"
        assert not session.closed


@played
async def test_a_namespace_closed_while_it_is_watched_disturbs_no_other():
    """A namespace that is deleted with its Role ends only its own watch: the other one is never opened again."""
    server = SmallServer()
    async with scene(server, "gone", "kept") as found:
        await until(lambda: server.watches["gone"] and server.watches["kept"], "both are watched")
        opened = server.count("namespaces/kept/tfclusters?watch")
        server.refused["gone"] = 403
        server.end_watches("gone")
        await until(lambda: found.watches[0].refused, "the refusal is told")
        server.put("x", "kept")
        await until(lambda: found.ear.alive == {"x"}, "the other one is served")
        assert server.count("namespaces/kept/tfclusters?watch") == opened


@pytest.mark.parametrize("left", [{"x"}, set()], ids=["one of two", "all"])
@played
async def test_what_vanished_in_a_gap_is_found(left):
    """Objects that were deleted without an open watch are found with the next list, also if it is empty."""
    server = SmallServer()
    for name in ("x", "y"):
        server.put(name)
    async with scene(server) as found:
        await until(lambda: found.ear.alive == {"x", "y"} and server.watches[""], "both are known")
        await until(lambda: found.ear.counts, "they were counted")
        for name in {"x", "y"} - left:
            server.remove(name, tell=False)
        server.say_error(410)
        await until(lambda: found.ear.alive == left, "what vanished is forgotten")
        assert ("DELETED", "y") not in found.ear.events


@played
async def test_a_list_in_pages_is_read_as_one():
    server = SmallServer()
    server.page = 2
    names = {f"c{i}" for i in range(5)}
    for name in names:
        server.put(name)
    async with scene(server) as found:
        await until(lambda: found.ear.counts and found.ear.alive == names, "all are known")
        assert found.ear.counts[0] == (None, {f"uid-of-{name}" for name in names})


@played
async def test_watch_that_ends_immediately_is_rate_limited():
    server = SmallServer()
    server.ends_at_once = True
    async with scene(server):
        await until(lambda: server.count("tfclusters?watch=true"), "the first watch")
        began = now()
        await until(lambda: server.count("tfclusters?watch=true") >= 10, "it is asked again and again")
        assert now() - began >= 10


@played
async def test_a_401_leaves_the_connections_open():
    """If the server rejects a token for a while, the watch ends, but neither the session nor the process."""
    server = SmallServer()
    server.put("x")
    async with scene(server) as found:
        await until(lambda: server.watches[""], "the watch is open")
        server.refused[""] = 401
        server.end_watches()
        await until(lambda: found.watches[0].refused, "the refusal is told")
        assert not found.session.closed
        server.refused.clear()
        server.put("y", tell=False)
        await until(lambda: found.ear.alive == {"x", "y"}, "it is watched again")


@played
async def test_discovery_that_lags_is_waited_for(monkeypatch):
    """If the server lists TFClusters but discovery does not include the kind, kopf is started again until it does."""
    monkeypatch.setattr(kopf_watch, "_DISCOVERY", 1.0)
    server = SmallServer()
    server.kind_discovered = False
    server.put("x")
    async with scene(server) as found:
        await until(lambda: server.count("GET /apis ") or server.requests.count("GET /apis") >= 2, "two tries")
        assert not found.watches[0].synced.is_set()
        server.kind_discovered = True
        await until(lambda: found.ear.alive == {"x"}, "x is known")


@played
async def test_signals_stay_ours():
    """Kopf installs a SIGTERM handler at each start; it is replaced each time, so the operator ends in order."""
    server = SmallServer()
    async with scene(server) as found:
        for _ in range(2):
            await until(lambda: server.watches[""], "the watch is open")
            found.signalled.clear()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(found.signalled.wait(), GUARD)
            server.say_error(500)
            await until(lambda: not server.watches[""], "the watch is closed")


@played
async def test_a_watch_that_is_ended_while_kopf_starts_leaves_nothing():
    server = SmallServer()
    async with server, connection.open_session(connection.Access(server.url)) as session:
        watch = KopfWatch(connection.Access(server.url), session, None, Ear(), own_signals=lambda: None, clock=CLOCK)
        others = asyncio.all_tasks()
        run = asyncio.create_task(watch.run())
        async with asyncio.timeout(GUARD):
            while not any(task.get_name() == "resource observer" for task in asyncio.all_tasks()):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
        run.cancel()
        await asyncio.wait([run])
        left = {task.get_name() for task in asyncio.all_tasks() - others}
        assert {name for name in left if not name.startswith("Task-")} == set()


@played
async def test_unreadable_object_does_not_end_the_watch():
    server = SmallServer()
    server.put("unreadable")
    async with scene(server) as found:
        await until(lambda: server.watches[""], "the watch is open")
        server.put("x")
        await until(lambda: found.ear.alive == {"x"}, "x is known")
