"""One ConfigMap delivers the resolver to all clusters of a namespace, on a real API server."""

from __future__ import annotations

import pytest
from support.lives import await_another_pass, await_asked_to_go, launch_running
from support.manifests import RECREATE
from support.objects import CONFIG_MAPS, PODS
from support.rbac import OPERATOR_USER
from support.waiting import eventually
from support.world import task_names

pytestmark = pytest.mark.usefixtures("operator")


def mounted(world, pod):
    """Return the ConfigMap with the resolver that a pod mounts."""
    volumes = {volume["name"]: volume for volume in world.demand(PODS, pod)["spec"]["volumes"]}
    return volumes["tfcluster-resolver"]["configMap"]["name"]


@pytest.mark.usefixtures("garbage_collector")
def test_one_copy_serves_all_clusters(world, audit):
    """Ten clusters that are declared together cost one create; it stays when nine of them are deleted."""
    names = [f"c{number}" for number in range(10)]
    position = audit.position()
    for name in names:
        world.launch(name, {"worker": {}})
    for name in names:
        world.await_settled(name)
    (copy,) = world.resolver_copies()

    assert {mounted(world, f"{name}-worker-0") for name in names} == {copy}
    made = [w for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace) if w.name == copy]
    assert [(w.verb, w.code) for w in made] == [("create", 201)]

    for name in names[1:]:
        world.remove(name)
    world.await_pods(["c0-worker-0"])
    await_another_pass(world, "c0")
    assert [*world.resolver_copies()] == [copy]


def test_deleted_resolver_comes_back(world):
    """Running pods keep their files; a restarted pod needs the ConfigMap."""
    world.launch("c", {"worker": {}})
    world.await_settled("c")
    (copy,) = world.resolver_copies()
    before = world.demand(CONFIG_MAPS, copy)

    world.delete(CONFIG_MAPS, copy)

    after = eventually(lambda: world.get(CONFIG_MAPS, copy), what="the copy is back")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["binaryData"] == before["binaryData"]


def test_forged_resolver_is_mounted_by_no_new_pod(world, kubelet):
    """A ConfigMap of another owner is reported and left alone; when it is deleted, the pods are created."""
    launch_running(world, kubelet, "a", {"worker": {}}, **RECREATE)
    world.await_condition("a", "Ready", status="True")
    (copy,) = world.resolver_copies()
    world.edit("a", {"resolver": {"delivery": "None"}})
    await_asked_to_go(world, "a-worker-0")
    kubelet.stop("a-worker-0")
    eventually(world.pods, lambda left: not left, what="nobody needs the copy")
    world.delete(CONFIG_MAPS, copy)
    forged = {"metadata": {"name": copy}, "immutable": True, "binaryData": {"tfcluster_resolver.zip": "Zm9yZ2Vk"}}
    uid = world.objects.create(CONFIG_MAPS, world.namespace, forged)["metadata"]["uid"]

    world.launch("b", {"worker": {"replicas": 2}})

    told = world.await_condition("b", "Ready", status="False", reason="ResolverUntrusted")
    assert copy in told["message"]
    await_another_pass(world, "b")
    assert world.pods_of("b") == {}
    assert world.demand(CONFIG_MAPS, copy)["metadata"]["uid"] == uid
    world.delete(CONFIG_MAPS, copy)
    world.await_pods_of("b", task_names("b", worker=2))
    assert world.demand(CONFIG_MAPS, copy)["metadata"]["uid"] != uid
