"""One copy of the resolver per namespace: its owner, its creation, its deletion, and what is never mounted."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from decisions.in_memory import creates, make_cluster, settled
from decisions.observed_pods import pod
from engine.test_survival import said
from simulation.dialect import CLUSTER, NAMESPACE, OPERATOR, RESOLVER
from simulation.workloads import job, ready
from simulation.world import World
from support.async_tests import simulated, within
from support.memory_kubernetes import Admission, Refusal

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.kube.store import Stores
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.life.views import views_of
from tfcluster_operator.objects.config_map import ConfigMap, ResolverArchive
from tfcluster_operator.objects.config_map import build_copy as build_resolver_config_map
from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.plan.actions import Create
from tfcluster_operator.plan.plan import plan
from tfcluster_operator.plan.story import Holds

ARCHIVE = ResolverArchive(b"zip")
NAME = naming.resolver_name(ARCHIVE.digest)
#: Seconds until a removed obstacle no longer blocks anything.
SOON = 10.0


def read(**changes: Any) -> ConfigMap:
    body = build_resolver_config_map("default", ARCHIVE) | changes
    body["metadata"] = {"uid": "u", "resourceVersion": "1", **body["metadata"]}
    found = KINDS["ConfigMap"].read(msgspec.json.encode(body))
    assert isinstance(found, ConfigMap)
    return found


def file(content: bytes) -> str:
    return base64.b64encode(content).decode()


OTHER_BYTES = {"binaryData": {"tfcluster_resolver.zip": file(b"zap")}}


# --- what is trusted
@pytest.mark.parametrize(
    ("changes", "genuine"),
    [
        ({}, True),
        ({"metadata": {"name": NAME, "namespace": "default"}}, True),
        ({"metadata": {"name": naming.resolver_name("0" * 64), "namespace": "default"}}, False),
        ({"metadata": {"name": NAME[:-1], "namespace": "default"}}, False),
        ({"immutable": False}, False),
        ({"immutable": None}, False),
        ({"binaryData": None}, False),
        (OTHER_BYTES, False),
        ({"binaryData": {"other.zip": file(b"zip")}}, False),
        ({"binaryData": {"tfcluster_resolver.zip": file(b"zip"), "os.py": file(b"")}}, False),
        ({"data": {"os.py": "import this"}}, False),
    ],
    ids=str,
)
def test_copy_is_judged_by_its_bytes(changes, genuine):
    assert read(**changes).is_genuine_copy == genuine


def test_archive_of_another_config_map_is_not_worked_out():
    """It would mean reading a megabyte of another user's binary file."""
    assert not read(metadata={"name": "c-worker", "namespace": "default"}).archive


@pytest.mark.parametrize(
    ("copy", "mounted", "current", "needed", "goes"),
    [
        (read(), set(), NAME, True, False),
        (read(), set(), NAME, False, True),
        (read(), {NAME}, NAME, False, False),
        (read(), set(), "tfcluster-resolver-newer", True, True),
        (read(), {NAME}, "tfcluster-resolver-newer", True, False),
        (read(**OTHER_BYTES), set(), NAME, False, False),
    ],
    ids=["wanted", "unwanted", "mounted", "old", "old and mounted", "another's, by its bytes"],
)
def test_copy_is_deleted_when_unused(copy, mounted, current, needed, goes):
    stores = Stores(lambda *_: None)
    stores.of["ConfigMap"].put(copy)
    for name in mounted:
        stores.of["Pod"].put(pod("demo-worker-0", resolver=name))
    assert stores.unused_copies(current, ["default"] if needed else []) == [copy] * goes


# --- the plan
def test_pods_wait_while_the_copy_is_repeatedly_deleted():
    """After two consecutive repairs it waits, and new pods wait for it."""
    world = settled(make_cluster({"worker": 1}))
    create = Create("ConfigMap", NAME, reasons.REPAIRED)
    holds = Holds()
    for _ in range(3):
        holds = holds.after({}, (), [create], world.now)
    volume = {"name": naming.RESOLVER_VOLUME, "configMap": {"name": NAME}}
    world.edit("Pod", "demo-worker-0", {"spec": {"volumes": [volume]}})
    cluster = make_cluster({"worker": 2})
    roster = call_roll(cluster, world.observe(cluster, resolver=NAME), resolver=NAME)
    found = plan(roster, world.ledger, views_of(roster).of_jobs, world.now, holds=holds)
    assert not any(creates(one, "ConfigMap", "Pod") for one in found.actions)
    assert reasons.CONFLICTING_WRITES in {one.reason for one in found.findings}


# --- lives


async def one_worker_runs(world: World) -> None:
    world.declare({"jobs": {"worker": job(1)}})
    assert await world.await_quiet(ready, SOON)


def requests(world: World, verb: str) -> list[Any]:
    return [
        one
        for one in world.kube.requests
        if one.user == OPERATOR and (one.verb, one.resource, one.name) == (verb, "configmaps", RESOLVER)
    ]


def copies(world: World) -> list[str]:
    found = world.kube.list("configmaps", NAMESPACE)
    return [one["metadata"]["name"] for one in found if naming.is_of_the_resolver(one["metadata"]["name"])]


def copy_of(world: World) -> dict[str, Any] | None:
    return world.kube.get("configmaps", NAMESPACE, RESOLVER)


@within(simulated)
async def test_repeatedly_deleted_copy_is_recreated_with_back_off(world: World) -> None:
    await one_worker_runs(world)
    made = len(requests(world, "create"))
    for _ in range(600):
        world.remove("configmaps", RESOLVER)
        await asyncio.sleep(0.5)
    assert 5 <= len(requests(world, "create")) - made <= 20
    assert said(world, "UpToDate") == ("False", "ConflictingWrites")
    assert await world.await_quiet(lambda world: said(world, "UpToDate")[0] == "True", 310.0)
    assert copy_of(world) is not None


@within(simulated)
async def test_copy_being_deleted_is_recreated_afterwards(world: World) -> None:
    """A finalizer keeps it for a while: in the meantime no pod is created that would lose it."""
    await one_worker_runs(world)
    keep = {"metadata": {"finalizers": ["example.com/keep"]}}
    world.kube.patch("configmaps", NAMESPACE, RESOLVER, keep, user="somebody")
    world.remove("configmaps", RESOLVER)
    world.edit({"jobs": {"worker": {"replicas": 2}}})
    await world.await_silence(SOON)
    assert len(world.pods()) == 1
    world.kube.patch("configmaps", NAMESPACE, RESOLVER, {"metadata": {"finalizers": None}}, user="somebody")
    assert await world.await_quiet(lambda world: ready(world) and len(world.pods()) == 2, SOON)


@within(simulated)
async def test_suspended_cluster_gets_its_copy_back_on_resume(world: World) -> None:
    """Deleted while it is suspended, with quotas: nothing is written until a pod is created, and then all is well."""
    world.declare({"jobs": {"worker": job(2)}})
    assert await world.await_quiet(ready, SOON)
    world.edit({"suspend": True})
    assert await world.await_quiet(lambda w: not w.pods(), 60.0)
    assert copies(world) == [RESOLVER]
    world.remove("configmaps", RESOLVER)
    await world.await_silence(60.0)
    assert copies(world) == []
    world.edit({"suspend": False})
    assert await world.await_quiet(lambda w: ready(w) and len(w.pods()) == 2, 60.0)
    assert copies(world) == [RESOLVER]


@within(simulated)
async def test_unused_copies_are_deleted_hourly(world: World) -> None:
    archives = [ResolverArchive(f"version {number}".encode()) for number in range(4)]
    mounted, protected, *unused = (naming.resolver_name(one.digest) for one in archives)
    forged = naming.resolver_name("0" * 64)

    def admit(asked: Admission) -> None:
        if asked.verb == "delete" and asked.old is not None and asked.old["metadata"]["name"] == protected:
            raise Refusal(403, "Forbidden", "protected")

    world.kube.admission.append(admit)
    world.operator.archive = archives[0]
    await world.operator.restart()
    world.declare({"jobs": {"worker": job(1)}})
    assert await world.await_quiet(ready, SOON)
    world.operator.archive = None
    await world.operator.restart()
    for one in archives[1:]:
        world.kube.create("configmaps", NAMESPACE, build_resolver_config_map(NAMESPACE, one), user="older")
    body = build_resolver_config_map(NAMESPACE, archives[0])
    body["metadata"]["name"] = forged
    world.kube.create("configmaps", NAMESPACE, body, user="somebody")
    await world.await_silence(1800.0)
    assert set(unused) < set(copies(world))

    await world.await_silence(2000.0)
    assert set(copies(world)) == {mounted, protected, forged}
    world.remove("tfclusters", CLUSTER)
    await world.await_silence(3700.0)
    assert set(copies(world)) == {protected, forged}


@within(simulated)
async def test_no_pod_mounts_a_copy_that_admission_changed(world: World) -> None:
    created: list[str] = []

    def admit(asked: Admission) -> None:
        if asked.verb == "create" and asked.object is not None and asked.resource in {"configmaps", "pods"}:
            created.append(asked.object["metadata"]["name"])
            if created[-1] == RESOLVER:
                asked.object["data"] = {"injected.py": "import os"}

    world.kube.admission.append(admit)
    world.declare({"jobs": {"worker": job(1)}})
    assert await world.await_quiet(lambda world: said(world, "Ready") == ("False", "ResolverUntrusted"), SOON)
    assert RESOLVER in created
    assert f"{CLUSTER}-worker-0" not in created
