"""The API server in memory: lists, pages, versions and watches, from the view of an HTTP client."""

from __future__ import annotations

import asyncio

from support.memory_kubernetes import TFCLUSTERS, MemorySession
from unit.async_tests import virtual
from unit.memory_world import Watcher, ask, make_kube, named, pod

MAPS = "/api/v1/namespaces/default/configmaps"


def make_session():
    kube = make_kube()
    return kube, MemorySession(kube, latency=0.0)


def names_of(listed):
    return [one["metadata"]["name"] for one in listed["items"]]


@virtual
async def test_memory_kubernetes_pages_show_one_moment():
    kube, session = make_session()
    for name in "abcde":
        kube.create("configmaps", "default", {**named(name), "data": {"v": "1"}})
    _, first = await ask(session, "GET", MAPS, params={"limit": "2"})
    kube.delete("configmaps", "default", "c")
    kube.delete("configmaps", "default", "e")
    kube.create("configmaps", "default", named("e"))
    kube.patch("configmaps", "default", "d", {"data": {"v": "2"}})
    kube.create("configmaps", "default", named("cc"))
    token = first["metadata"]["continue"]
    _, second = await ask(session, "GET", MAPS, params={"limit": "2", "continue": token})
    token = second["metadata"]["continue"]
    _, third = await ask(session, "GET", MAPS, params={"limit": "2", "continue": token})
    moment = {"resourceVersion": first["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
    _, exact = await ask(session, "GET", MAPS, params=moment)
    pages = (first, second, third, exact)
    assert [names_of(page) for page in pages] == [["a", "b"], ["c", "d"], ["e"], ["a", "b", "c", "d", "e"]]
    assert [page["metadata"].get("remainingItemCount") for page in pages] == [3, 1, None, None]
    assert {page["metadata"]["resourceVersion"] for page in pages} == {"1006"}
    assert pages[1]["items"][1]["data"] == pages[3]["items"][3]["data"] == {"v": "1"}
    assert "continue" not in pages[2]["metadata"]


@virtual
async def test_memory_kubernetes_compacted_page_is_expired():
    """After a compaction a continue and an exact version return 410 Expired."""
    kube, session = make_session()
    for name in "abc":
        kube.create("configmaps", "default", named(name))
    _, first = await ask(session, "GET", MAPS, params={"limit": "2"})
    kube.delete("configmaps", "default", "c")
    kube.compact(kube.revision)
    token = first["metadata"]["continue"]
    page = await ask(session, "GET", MAPS, params={"limit": "2", "continue": token})
    exact = await ask(session, "GET", MAPS, params={"resourceVersion": "1002", "resourceVersionMatch": "Exact"})
    any_newer, future = [await ask(session, "GET", MAPS, params={"resourceVersion": v}) for v in ("1002", "99999")]
    assert (page[0], page[1]["reason"]) == (410, "Expired")
    assert "The provided continue parameter is too old" in page[1]["message"]
    assert exact[1]["message"] == "The resourceVersion for the provided list is too old."
    assert (any_newer[0], any_newer[1]["metadata"]["resourceVersion"]) == (200, "1005")
    assert (future[0], future[1]["message"]) == (504, "Timeout: Too large resource version: 99999, current: 1005")


async def watch_pods(kube, session, acts, **params):
    """Watch while an action runs, for at least a second."""
    watcher = Watcher(session, timeoutSeconds="1", **params)
    following = asyncio.create_task(watcher.follow())
    await asyncio.sleep(0.1)
    acts(kube)
    await following
    return watcher


@virtual
async def test_memory_kubernetes_a_watch_without_version_begins_with_what_exists():
    """Each existing object is an ADDED event; sendInitialEvents marks their end."""
    kube, session = make_session()
    kube.create("pods", "default", pod("a"))
    plain = await watch_pods(kube, session, lambda kube: kube.create("pods", "default", pod("b")))
    wanted = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    streamed = await watch_pods(kube, session, lambda _: None, **wanted)
    assert plain.heard == [("ADDED", "a"), ("ADDED", "b")]
    assert streamed.heard == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")]
    assert streamed.events[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@virtual
async def test_memory_kubernetes_bookmarks_come_every_minute_and_before_the_end():
    """They carry the newest version of all kinds, and only clients that request them get them."""
    kube, session = make_session()
    asked = Watcher(session, resourceVersion="1001", timeoutSeconds="130", allowWatchBookmarks="true")
    other = Watcher(session, resourceVersion="1001", timeoutSeconds="130")
    kube.create("configmaps", "default", named("m"))
    await asyncio.gather(asked.follow(), other.follow())
    assert [round(time - 1000) for time in asked.times] == [60, 120, 128]
    assert asked.events[0] == {
        "type": "BOOKMARK",
        "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "1002"}},
    }
    assert other.events == []


@virtual
async def test_memory_kubernetes_a_watch_from_a_forgotten_version_gets_an_error_event():
    """410 Expired is an ERROR in a stream with status 200, as on the real server; open watches continue."""
    kube, session = make_session()
    kept = Watcher(session, resourceVersion=str(kube.revision), timeoutSeconds="1")
    following = asyncio.create_task(kept.follow())
    await asyncio.sleep(0.1)
    kube.create("configmaps", "default", named("m"))
    kube.compact(kube.revision)
    late = Watcher(session, resourceVersion="1001", timeoutSeconds="1")
    await late.follow()
    await following
    (event,) = late.events
    assert (late.status, event["type"], event["object"]["code"], event["object"]["reason"]) == (
        200,
        "ERROR",
        410,
        "Expired",
    )
    assert event["object"]["message"] == "too old resource version: 1001 (1002)"
    assert (kept.events, kept.end) == ([], None)


@virtual
async def test_memory_kubernetes_a_watch_ends_with_its_kind():
    """When a CRD is deleted, its watch reports the last deletions and ends; its last version is then too old."""
    path = "/apis/tfcluster.dev/v1alpha1/tfclusters"
    kube, session = make_session()
    kube.create("tfclusters", "default", {**named("c"), "spec": {}})
    watcher = Watcher(session, path, resourceVersion=str(kube.revision))
    following = asyncio.create_task(watcher.follow())
    await asyncio.sleep(0.1)
    kube.uninstall("tfclusters")
    await asyncio.wait_for(following, 1)
    gone = await ask(session, "GET", path)
    kube.install(TFCLUSTERS)
    kube.create("tfclusters", "default", {**named("d"), "spec": {}})
    again = Watcher(session, path, resourceVersion="1002", timeoutSeconds="1")
    await again.follow()
    assert (watcher.heard, watcher.end) == ([("DELETED", "c")], None)
    assert gone == (404, "404 page not found\n")
    assert again.events[0]["object"]["code"] == 410
