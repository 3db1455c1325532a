"""The garbage collector of the API server in memory: what is deleted with its owners, and when."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from support.memory_kubernetes import Refusal
from unit.async_tests import within
from unit.memory_world import make_kube, named, owned, pod, refusal_of


@asynccontextmanager
async def collecting():
    kube = make_kube()
    collector = asyncio.create_task(kube.collect_garbage(delay=0.5))
    await asyncio.sleep(0.1)
    yield kube
    collector.cancel()


collected = within(collecting)


def names_of(kube, plural="configmaps"):
    return [one["metadata"]["name"] for one in kube.list(plural)]


def owner(kube, name="o"):
    return kube.create("tfclusters", "default", {**named(name), "spec": {}})


@collected
async def test_memory_kubernetes_dependants_go_after_a_delay(kube):
    """In the background: the owner immediately, its dependants after the delay, and so on recursively."""
    child = kube.create("configmaps", "default", owned("child", owner(kube)))
    kube.create("configmaps", "default", owned("grandchild", child))
    kube.create("configmaps", "default", named("stranger"))
    kube.delete("tfclusters", "default", "o")
    seen = [names_of(kube)]
    for _ in range(2):
        await asyncio.sleep(0.6)
        seen.append(names_of(kube))
    assert seen == [["child", "grandchild", "stranger"], ["grandchild", "stranger"], ["stranger"]]


@collected
async def test_memory_kubernetes_what_names_an_absent_owner_goes(kube):
    gone = owner(kube)
    kube.delete("tfclusters", "default", "o")
    kube.create("configmaps", "default", owned("late", gone))
    kube.create("configmaps", "default", owned("kept", owner(kube)))
    await asyncio.sleep(1.5)
    assert names_of(kube) == ["kept"]


@pytest.mark.parametrize("gone_before", [True, False])
@collected
async def test_memory_kubernetes_one_living_owner_keeps_an_object(kube, gone_before):
    """It stays, and the reference to the deleted owner is removed, also if it is added later."""
    first, second = owner(kube, "one"), owner(kube, "two")
    if gone_before:
        kube.delete("tfclusters", "default", "one")
    kube.create("configmaps", "default", owned("m", first, second))
    if not gone_before:
        kube.delete("tfclusters", "default", "one")
    await asyncio.sleep(1.5)
    left = kube.get("configmaps", "default", "m")
    assert [one["uid"] for one in left["metadata"]["ownerReferences"]] == [second["metadata"]["uid"]]


@collected
async def test_memory_kubernetes_foreground_deletion_waits_for_what_blocks_it(kube):
    manifest = {**pod(), "metadata": owned("p", owner(kube), blockOwnerDeletion=True)["metadata"]}
    kube.create("pods", "default", manifest)
    kube.bind("default", "p", "node")
    kube.delete("tfclusters", "default", "o", propagation="Foreground")
    await asyncio.sleep(1.5)
    assert "deletionTimestamp" in kube.get("pods", "default", "p")["metadata"]
    assert kube.get("tfclusters", "default", "o")["metadata"]["finalizers"] == ["foregroundDeletion"]
    kube.delete("pods", "default", "p", grace=0)
    await asyncio.sleep(1.5)
    assert kube.list("tfclusters") == []


@collected
async def test_memory_kubernetes_orphans_stay(kube):
    kube.create("configmaps", "default", owned("m", owner(kube)))
    kube.delete("tfclusters", "default", "o", propagation="Orphan")
    await asyncio.sleep(2)
    assert "ownerReferences" not in kube.get("configmaps", "default", "m")["metadata"]
    assert kube.list("tfclusters") == []


@collected
async def test_memory_kubernetes_garbage_collector_retries_rejected_deletions(kube):
    """While a hook rejects deletions the dependant stays; afterwards it is deleted."""
    kube.create("configmaps", "default", owned("m", owner(kube)))
    kube.delete("tfclusters", "default", "o")

    def refuse(admission):
        raise Refusal(500, "InternalError", f"failed calling webhook for {admission.resource}")

    kube.admission.append(refuse)
    await asyncio.sleep(3)
    before = names_of(kube)
    kube.admission.clear()
    await asyncio.sleep(1.5)
    assert (before, names_of(kube)) == (["m"], [])


@collected
async def test_memory_kubernetes_dependants_go_with_their_kind(kube):
    kube.create("configmaps", "default", owned("m", owner(kube)))
    kube.uninstall("tfclusters")
    await asyncio.sleep(1.5)
    assert (names_of(kube), refusal_of(kube.list, "tfclusters").status) == ([], 404)
