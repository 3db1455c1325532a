"""The garbage collector of the API server in memory: what goes with its owners, and when."""

from __future__ import annotations

import asyncio

from support.virtual_time import run_in_virtual_time
from unit.memory_world import make_kube, named, owned, pod, refusal_of

from memory_kubernetes import Refusal


def collecting(act, *, delay=0.5):
    """Run the collector while something is done, and give the server afterwards."""

    async def main():
        kube = make_kube()
        collector = asyncio.create_task(kube.collect_garbage(delay=delay))
        await asyncio.sleep(0.1)
        told = await act(kube)
        collector.cancel()
        return told

    return run_in_virtual_time(main())


def names_of(kube, plural="configmaps"):
    return [one["metadata"]["name"] for one in kube.list(plural)]


def owner(kube, name="o"):
    return kube.create("tfclusters", "default", {**named(name), "spec": {}})


def test_memory_kubernetes_dependants_go_after_a_delay():
    """In the background: the owner at once, what it owned after the delay, and so on down the line."""

    async def act(kube):
        child = kube.create("configmaps", "default", owned("child", owner(kube)))
        kube.create("configmaps", "default", owned("grandchild", child))
        kube.create("configmaps", "default", named("stranger"))
        kube.delete("tfclusters", "default", "o")
        seen = [names_of(kube)]
        for _ in range(2):
            await asyncio.sleep(0.6)
            seen.append(names_of(kube))
        return seen

    assert collecting(act) == [["child", "grandchild", "stranger"], ["grandchild", "stranger"], ["stranger"]]


def test_memory_kubernetes_what_names_an_absent_owner_goes():
    """Also where the owner was gone before, or never was."""

    async def act(kube):
        gone = owner(kube)
        kube.delete("tfclusters", "default", "o")
        kube.create("configmaps", "default", owned("late", gone))
        kube.create("configmaps", "default", owned("kept", owner(kube)))
        await asyncio.sleep(1.5)
        return names_of(kube)

    assert collecting(act) == ["kept"]


def test_memory_kubernetes_one_living_owner_keeps_an_object():
    """It stays, and the reference to the owner that is gone is taken out."""

    async def act(kube):
        first, second = owner(kube, "one"), owner(kube, "two")
        kube.create("configmaps", "default", owned("m", first, second))
        kube.delete("tfclusters", "default", "one")
        await asyncio.sleep(1.5)
        return kube.get("configmaps", "default", "m"), second

    left, second = collecting(act)
    assert [one["uid"] for one in left["metadata"]["ownerReferences"]] == [second["metadata"]["uid"]]


def test_memory_kubernetes_an_absent_owner_beside_a_living_one_is_forgotten():
    """An object made with both stays, and loses the reference to the absent one."""

    async def act(kube):
        gone = owner(kube, "gone")
        kube.delete("tfclusters", "default", "gone")
        kept = owner(kube, "kept")
        kube.create("configmaps", "default", owned("m", gone, kept))
        await asyncio.sleep(1.5)
        return kube.get("configmaps", "default", "m")["metadata"]["ownerReferences"], kept["metadata"]["uid"]

    references, uid = collecting(act)
    assert [one["uid"] for one in references] == [uid]


def test_memory_kubernetes_foreground_deletion_waits_for_what_blocks_it():
    """The owner goes after the pod that blocks its deletion has stopped."""

    async def act(kube):
        manifest = {**pod(), "metadata": owned("p", owner(kube), blockOwnerDeletion=True)["metadata"]}
        kube.create("pods", "default", manifest)
        kube.bind("default", "p", "node")
        kube.delete("tfclusters", "default", "o", propagation="Foreground")
        await asyncio.sleep(1.5)
        marked = kube.get("pods", "default", "p")["metadata"], kube.get("tfclusters", "default", "o")["metadata"]
        kube.delete("pods", "default", "p", grace=0)
        await asyncio.sleep(1.5)
        return marked, kube.list("tfclusters")

    (pod_metadata, owner_metadata), left = collecting(act)
    assert "deletionTimestamp" in pod_metadata
    assert owner_metadata["finalizers"] == ["foregroundDeletion"]
    assert left == []


def test_memory_kubernetes_orphans_stay():
    """They lose the reference, and their owner goes."""

    async def act(kube):
        kube.create("configmaps", "default", owned("m", owner(kube)))
        kube.delete("tfclusters", "default", "o", propagation="Orphan")
        await asyncio.sleep(2)
        return kube.get("configmaps", "default", "m"), kube.list("tfclusters")

    left, owners = collecting(act)
    assert "ownerReferences" not in left["metadata"]
    assert owners == []


def test_memory_kubernetes_the_collector_tries_again_what_is_refused():
    """While a hook refuses deletions the dependant stays; afterwards it goes."""

    async def act(kube):
        kube.create("configmaps", "default", owned("m", owner(kube)))
        kube.delete("tfclusters", "default", "o")

        def refuse(admission):
            raise Refusal(500, "InternalError", f"failed calling webhook for {admission.resource}")

        kube.admission.append(refuse)
        await asyncio.sleep(3)
        before = names_of(kube)
        kube.admission.clear()
        await asyncio.sleep(1.5)
        return before, names_of(kube)

    assert collecting(act) == (["m"], [])


def test_memory_kubernetes_dependants_go_with_their_kind():
    """What a TFCluster owns goes when the CRD goes."""

    async def act(kube):
        kube.create("configmaps", "default", owned("m", owner(kube)))
        kube.uninstall("tfclusters")
        await asyncio.sleep(1.5)
        return names_of(kube), refusal_of(kube.list, "tfclusters").status

    assert collecting(act) == ([], 404)
