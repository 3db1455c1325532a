"""One copy of the resolver for each namespace, and who else acts on it: policies, owners, late watches, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

from simulation import dialect
from simulation.dialect import CLUSTER, NAMESPACE, OPERATOR, RESOLVER
from simulation.plans import Plan
from simulation.running import run_in_virtual_time
from simulation.workloads import job, ready
from simulation.world import World
from unit.test_survival import live

from memory_kubernetes import Answer, Refusal
from tfcluster_operator.manifests import ResolverArchive, build_resolver_config_map
from tfcluster_operator.model import naming

SOON = 10.0
OLD = ResolverArchive(b"an older version")
OLD_NAME = naming.resolver_name(OLD.digest)


def copies(world: World) -> list[str]:
    found = world.kube.list("configmaps", NAMESPACE)
    return [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith("tfcluster-resolver-")]


def mounts(pod: dict[str, Any]) -> str:
    volumes = {one["name"]: one for one in pod["spec"].get("volumes") or ()}
    return volumes.get("tfcluster-resolver", {}).get("configMap", {}).get("name", "")


def requests(world: World, verb: str, name: str = RESOLVER, resource: str = "configmaps") -> list[Any]:
    return [
        one
        for one in world.kube.requests
        if one.user == OPERATOR and (one.verb, one.resource) == (verb, resource) and name in ("", one.name)
    ]


def homeless(world: World) -> list[str]:
    """Pods that mount a copy that is not there."""
    there = copies(world)
    return [p["metadata"]["name"] for p in world.pods() if mounts(p) and mounts(p) not in there]


def test_admission_that_changes_the_new_copy_lets_no_pod_mount_it():
    """security.md: with other content, or if it is not immutable, it makes no pod."""

    async def story(world: World) -> None:
        def admit(asked: Any) -> None:
            if asked.resource == "configmaps" and asked.verb == "create":
                asked.object.setdefault("data", {})["ca.crt"] = "injected"

        world.kube.admission.append(admit)
        world.declare({"jobs": {"worker": job(2)}})
        await world.await_silence(SOON)
        made = len(world.pods())
        assert made == 0

    live(story)


def owned_by(world: World, name: str) -> dict[str, Any]:
    cluster = world.cluster(name)
    assert cluster is not None
    owner = {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "name": name,
        "uid": cluster["metadata"]["uid"],
        "controller": True,
    }
    return {"metadata": {"ownerReferences": [owner]}}


def test_copy_that_got_an_owner_is_not_deleted_under_other_clusters_pods():
    """A policy adds the TFCluster as its owner; that TFCluster needs it no more, another's pods mount it."""

    async def story(world: World) -> None:
        world.declare({"jobs": {"worker": job(1)}})
        world.declare({"jobs": {"worker": job(1)}, "resolver": {"delivery": "None"}}, name="d")
        assert await world.await_quiet(lambda w: ready(w) and ready(w, "d"), SOON)
        for _ in range(5):
            world.kube.patch("configmaps", NAMESPACE, RESOLVER, owned_by(world, "d"), user="policy")
            await world.await_silence(5.0)
        assert not requests(world, "delete")

    live(story)


def test_older_copy_with_an_owner_stays_while_pods_mount_it():
    """After an upgrade the older copy has an owner: its pods keep it, nobody could make it again."""

    async def story(world: World) -> None:
        world.operator.archive = OLD
        await world.operator.restart()
        world.declare({"jobs": {"worker": job(2)}})
        assert await world.await_quiet(ready, SOON)
        assert copies(world) == [OLD_NAME]
        world.kube.patch("configmaps", NAMESPACE, OLD_NAME, owned_by(world, CLUSTER), user="policy")
        await world.await_silence(5.0)
        world.operator.archive = None
        await world.operator.restart()
        await world.await_silence(30.0)
        assert homeless(world) == []

    live(story)


def slow(world: World, verb: str, resource: str, seconds: float, times: int = 1000) -> list[float]:
    """Let the API server take its time over some requests of the operator."""
    before = world.faults.before
    seen: list[float] = []

    async def later(request: Any) -> Answer | None:
        if (request.verb, request.resource) == (verb, resource) and len(seen) < times:
            seen.append(world.elapsed())
            await asyncio.sleep(seconds)
        return await before(request)

    world.faults.before = later  # type: ignore[method-assign]
    return seen


def churn(world: World, number: int) -> None:
    for name in ("c-worker-0", "c-worker-1"):
        change = {"metadata": {"annotations": {"tfcluster.dev/x": str(number)}}}
        world.kube.patch("pods", NAMESPACE, name, change, user="somebody")


def test_refused_deletion_is_tried_once_a_minute_whatever_else_happens():
    """_REFUSED is 60 s; each event of any child in the namespace has it tried again at once."""

    async def story(world: World) -> None:
        def authorize(request: Any) -> None:
            if (request.verb, request.resource, request.user) == ("delete", "configmaps", OPERATOR):
                raise Refusal(403, "Forbidden", "configmaps is forbidden: no deletion")

        world.kube.authorize.append(authorize)
        found = build_resolver_config_map(NAMESPACE, OLD)
        world.kube.create("configmaps", NAMESPACE, found, user="older operator")
        world.declare({"jobs": {"worker": job(2)}})
        assert await world.await_quiet(ready, SOON)
        before = len(requests(world, "delete", OLD_NAME))
        for number in range(1200):
            churn(world, number)
            await asyncio.sleep(0.05)
        tried = len(requests(world, "delete", OLD_NAME)) - before
        assert tried <= 3

    live(story)


def test_one_copy_that_cannot_be_deleted_does_not_keep_the_others():
    """A policy protects one; the rest of the list is never tried."""

    async def story(world: World) -> None:
        archives = [ResolverArchive(f"version {number}".encode()) for number in range(8)]
        names = [naming.resolver_name(one.digest) for one in archives]

        def admit(asked: Any) -> None:
            if asked.verb == "delete" and asked.resource == "configmaps" and asked.old["metadata"]["name"] == names[3]:
                raise Refusal(403, "Forbidden", "protected")

        world.kube.admission.append(admit)
        for one in archives:
            world.kube.create("configmaps", NAMESPACE, build_resolver_config_map(NAMESPACE, one), user="older")
        await world.await_silence(600.0)
        assert copies(world) == [names[3]]

    live(story)


def test_copy_that_somebody_makes_each_time_is_not_deleted_each_time():
    """GitOps (self-heal) keeps a hand-made copy in a namespace without TFClusters."""

    async def story(world: World) -> None:
        for _ in range(600):
            if not copies(world):
                found = build_resolver_config_map(NAMESPACE, ResolverArchive(dialect.ARCHIVE))
                world.kube.create("configmaps", NAMESPACE, found, user="gitops")
            await asyncio.sleep(0.5)
        assert len(requests(world, "delete")) <= 20

    live(story)


def test_copy_goes_though_an_invalid_cluster_lost_pods():
    """Nobody looks what became of them, so the sweep waits for ever, and looks each second."""

    async def story(world: World) -> None:
        world.declare({"jobs": {"worker": job(2)}})
        assert await world.await_quiet(ready, SOON)
        world.edit({"resolver": {"delivery": "None"}, "jobs": {"worker": {"minAvailable": "x", "port": 0}}})
        await world.await_silence(2.0)
        world.faults.go_away(2.0)
        world.faults._gone.add("pods")  # the watch begins with a list: 410
        for pod in world.pods():
            world.kube.delete("pods", NAMESPACE, pod["metadata"]["name"], grace=0, user="somebody")
        passes = []
        assert world.operator.engine is not None
        reconciler = world.operator.engine._reconciler
        sweep = reconciler._copies.sweep

        async def counted(namespace: str) -> float | None:
            passes.append(namespace)
            return await sweep(namespace)

        reconciler._copies.sweep = counted  # type: ignore[method-assign]
        await world.await_silence(600.0)
        assert copies(world) == []

    live(story)


def hand_over(lag: float) -> World:
    """A rolling upgrade: the newer operator takes the lease while its watch of the pods is late."""
    worlds = []

    async def play() -> None:
        world = World(Plan("create", None, "second operator"))
        worlds.append(world)
        world.operator.archive = OLD
        world.begin()
        await world.await_leader()
        newer = world.another_operator("b")
        world._others.append(newer)
        newer.start()
        await world.await_silence(5.0)
        world.faults.see_late("pods", lag)
        world.declare({"jobs": {"worker": job(2)}})
        while len(world.pods()) < 2:  # noqa: ASYNC110 - the world is another's, and time is virtual
            await asyncio.sleep(0.002)
        world.operator._over = True
        await world.operator.restart()
        await world.await_silence(120.0)
        await world.end()

    run_in_virtual_time(play())
    return worlds[0]


def test_older_copy_stays_though_the_newer_operator_sees_the_pods_late():
    left = {lag: homeless(hand_over(lag)) for lag in (0.0, 0.1, 0.3, 1.0, 5.0, 30.0)}
    assert left == {lag: [] for lag in left}


def test_copy_that_is_needed_again_while_others_are_swept():
    """The list of what goes is made once, and carried out in requests that take their time."""

    async def story(world: World) -> None:
        world.declare({"jobs": {"worker": job(2)}})
        assert await world.await_quiet(ready, SOON)
        world.crash()
        for number in range(6):
            old = build_resolver_config_map(NAMESPACE, ResolverArchive(f"version {number}".encode()))
            world.kube.create("configmaps", NAMESPACE, old, user="older")
        world.remove("tfclusters", CLUSTER)
        for pod in world.pods():
            world.kube.delete("pods", NAMESPACE, pod["metadata"]["name"], grace=0, user="gc")
        seen = slow(world, "delete", "configmaps", 3.0)
        while not seen:  # noqa: ASYNC110 - the world is another's, and time is virtual
            await asyncio.sleep(0.1)
        world.declare({"jobs": {"worker": job(3)}}, name="e")
        gone = []
        for _ in range(300):
            await asyncio.sleep(0.1)
            gone.append(homeless(world))
        repaired = [e["message"] for e in world.kube.list("events", NAMESPACE) if e["reason"] == "Repaired"]
        assert not any(gone)
        assert repaired == []

    live(story)


def test_policy_that_rewrites_a_label_of_the_copy_is_no_hammering():
    names = [CLUSTER, *(f"c{number}" for number in range(20))]

    async def story(world: World) -> None:
        def admit(asked: Any) -> None:
            if (
                asked.resource == "configmaps"
                and asked.object is not None
                and "resolver" in asked.object["metadata"]["name"]
            ):
                asked.object["metadata"].setdefault("labels", {})["app.kubernetes.io/managed-by"] = "policy"

        world.kube.admission.append(admit)
        for name in names:
            world.declare({"jobs": {"worker": job(1)}}, name=name)
        await world.await_silence(600.0)
        assert len(requests(world, "patch")) <= 20

    live(story)


def test_policy_that_makes_a_cluster_the_owner_of_each_new_copy():
    """The cluster needs no copy, and takes it from another's pods each time; the truce leaves them without it."""

    async def story(world: World) -> None:
        world.declare({"jobs": {"worker": job(1)}, "resolver": {"delivery": "None"}}, name="d")
        assert await world.await_quiet(lambda w: ready(w, "d"), SOON)
        owner = owned_by(world, "d")["metadata"]["ownerReferences"]

        def admit(asked: Any) -> None:
            if (
                asked.resource == "configmaps"
                and asked.verb == "create"
                and asked.object["metadata"]["name"] == RESOLVER
            ):
                asked.object["metadata"]["ownerReferences"] = owner

        world.kube.admission.append(admit)
        world.declare({"jobs": {"worker": job(1)}})
        absent = 0
        for _ in range(1200):
            await asyncio.sleep(0.5)
            absent += bool(homeless(world))
        assert absent == 0

    live(story)


def test_finalizer_that_somebody_set_on_the_copy_does_not_stop_the_next_cluster_without_a_word():
    async def story(world: World) -> None:
        world.declare({"jobs": {"worker": job(1)}})
        assert await world.await_quiet(ready, SOON)
        keep = {"metadata": {"finalizers": ["example.com/keep"]}}
        world.kube.patch("configmaps", NAMESPACE, RESOLVER, keep, user="somebody")
        world.remove("tfclusters", CLUSTER)
        await world.await_silence(60.0)
        world.declare({"jobs": {"worker": job(1)}}, name="e")
        await world.await_silence(600.0)
        told = dialect.condition(world.cluster("e"), "Ready")
        assert told["reason"] != "TasksNotReady" or "finalizer" in told["message"]

    live(story)


def test_copies_of_an_earlier_installation_go_when_it_is_installed_again():
    async def story(world: World) -> None:
        world.kube.create("configmaps", NAMESPACE, build_resolver_config_map(NAMESPACE, OLD), user="older")
        await world.await_silence(120.0)
        assert copies(world) == []

    live(story)


def test_suspended_cluster_gets_its_copy_back_only_when_it_goes_on():
    """Deleted while it is suspended, with quotas: nothing is written until a pod is made, and then all is well."""

    async def story(world: World) -> None:
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

    live(story)


def test_delivery_off_and_on_again_and_again_ends_well():
    async def story(world: World) -> None:
        world.declare({"jobs": {"worker": job(3)}})
        for number in range(60):
            world.edit({"resolver": {"delivery": "None" if number % 2 else "ConfigMap"}})
            await asyncio.sleep(0.37)
        world.edit({"resolver": {"delivery": "ConfigMap"}})
        assert await world.await_quiet(lambda w: ready(w) and not homeless(w), 300.0)
        assert copies(world) == [RESOLVER]

    live(story)


def test_label_taken_off_a_copy_that_another_controller_owns():
    """A controller of another kind is its owner; then its labels go, and then the last cluster."""

    async def story(world: World) -> None:
        world.declare({"jobs": {"worker": job(1)}})
        assert await world.await_quiet(ready, SOON)
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "app", "uid": "", "controller": True}
        made = world.kube.create("configmaps", NAMESPACE, {"metadata": {"name": "app"}}, user="app")
        owner["uid"] = made["metadata"]["uid"]
        change = {"metadata": {"ownerReferences": [owner]}}
        world.kube.patch("configmaps", NAMESPACE, RESOLVER, change, user="app")
        await world.await_silence(5.0)
        world.kube.patch("configmaps", NAMESPACE, RESOLVER, {"metadata": {"labels": None}}, user="app")
        await world.await_silence(60.0)
        found = world.kube.get("configmaps", NAMESPACE, RESOLVER)
        assert found is not None
        world.remove("tfclusters", CLUSTER)
        await world.await_silence(120.0)
        assert copies(world) == []

    live(story)
