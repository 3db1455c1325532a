"""Placement on a real scheduler: six simulated nodes with eight GPUs each, two in each of three zones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.manifests import gpu_tasks
from support.objects import NODES, PODS, Object, Objects
from support.waiting import eventually
from support.world import World

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.exhaustive

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NEAR = {"colocate": {"topologyKey": ZONE}}
NODES_OF_A_ZONE = 2


@pytest.fixture(scope="module")
def own_server_options() -> dict[str, int]:
    return {"kwok_nodes": 6, "gangs": "topology"}


@pytest.fixture(scope="module")
def own_objects(own_objects: Objects) -> Objects:
    for node in own_objects.list(NODES, ""):
        name = node["metadata"]["name"]
        zone = "abc"[int(name.rpartition("-")[2]) // NODES_OF_A_ZONE]
        own_objects.patch(NODES, "", name, {"metadata": {"labels": {ZONE: zone}}})
    return own_objects


@pytest.fixture
def home(home: World) -> Iterator[World]:
    yield home
    cordon(home)


def places(world: World, cluster: str, key: str = ZONE) -> dict[str, str]:
    """Return the domain of each pod that has a node and does not terminate."""
    domains = {one["metadata"]["name"]: one["metadata"]["labels"][key] for one in world.objects.list(NODES, "")}
    return {pod: domains[world.demand(PODS, pod)["spec"]["nodeName"]] for pod in world.placed(cluster)}


def cordon(world: World, *zones: str, but: str = "") -> None:
    """Cordon the nodes of some zones, or all except those of one; uncordon the others."""
    for node in world.objects.list(NODES, ""):
        zone = node["metadata"]["labels"][ZONE]
        closed = zone != but if but else zone in zones
        world.objects.patch(NODES, "", node["metadata"]["name"], {"spec": {"unschedulable": closed or None}})


def is_ready(pod: Object) -> bool:
    told = {one["type"]: one["status"] for one in pod["status"].get("conditions") or ()}
    return told.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def await_ready(world: World, cluster: str) -> None:
    world.await_condition(cluster, "Ready", status="True")
    # The status can still count a pod that was lost a moment ago.
    eventually(
        lambda: world.pods_of(cluster),
        lambda pods: all(is_ready(pod) for pod in pods.values()),
        what=f"all pods of {cluster} are Ready",
    )


def the_only(found: dict[str, str], *, count: int) -> str:
    assert len(found) == count, found
    assert len(set(found.values())) == 1, found
    return next(iter(found.values()))


def await_back(world: World, cluster: str, pod: str) -> str:
    """Delete a pod, and return the domain of its replacement."""
    before = world.uid(pod)
    world.delete(PODS, pod)
    world.await_replaced(pod, before)
    await_ready(world, cluster)
    return places(world, cluster)[pod]


def test_colocated_cluster_is_in_one_zone_and_the_next_one_whole_in_another(home):
    """Each takes the 16 GPUs of a zone, so three of them fit and no task of a fourth."""
    jobs = {"chief": gpu_tasks(1, 4), "worker": gpu_tasks(3, 4)}
    zones = set()
    for name in ("first", "second", "third"):
        home.launch(name, jobs, scheduling=NEAR)
        await_ready(home, name)
        zones.add(the_only(places(home, name), count=4))
    assert zones == {"a", "b", "c"}
    home.launch("fourth", jobs, scheduling=NEAR)
    eventually(
        lambda: home.get(PODS, "fourth-worker-0"),
        lambda pod: pod is not None and "Insufficient" in str(pod["status"].get("conditions")),
        what="there is no zone for the fourth",
    )


ANYWAY = {"colocate": {"topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}}
SPREAD_PS = {"spread": [{"jobs": ["ps"], "topologyKey": HOST}]}


@pytest.mark.parametrize(
    ("open_zone", "jobs", "scheduling", "key", "counts"),
    [
        pytest.param("", {"worker": (3, 8)}, ANYWAY, ZONE, [1, 2], id="schedule anyway takes a place elsewhere"),
        pytest.param("b", {"ps": (4, 1)}, SPREAD_PS, HOST, [2, 2], id="hosts that no task can use are no empty ones"),
        pytest.param("", {"ps": (2, 1)}, {**NEAR, **SPREAD_PS}, HOST, [1, 1], id="tasks are spread within their zone"),
    ],
)
def test_tasks_are_counted_by_place(home, open_zone, jobs, scheduling, key, counts):  # noqa: PLR0917 - a table
    if open_zone:
        cordon(home, but=open_zone)
    home.launch("c", {job: gpu_tasks(*of) for job, of in jobs.items()}, scheduling=scheduling)
    await_ready(home, "c")
    assert sorted(Counter(places(home, "c", key).values()).values()) == counts
    if "colocate" in scheduling and scheduling is not ANYWAY:
        the_only(places(home, "c"), count=2)


def test_without_colocation_tasks_are_in_several_zones_and_with_it_only_named_jobs_are_together(home):
    """The counterproof: without the field, four tasks that fit into a zone are spread."""
    home.launch("c", {"chief": gpu_tasks(1, 4), "worker": gpu_tasks(3, 4)})
    await_ready(home, "c")
    assert len(set(places(home, "c").values())) > 1
    home.remove("c")
    eventually(lambda: not home.pods_of("c"), what="its places are free")
    # The workers fill their zone; the other job is placed elsewhere.
    jobs = {"worker": gpu_tasks(2, 8), "ps": gpu_tasks(1, 8)}
    home.launch("d", jobs, scheduling={"colocate": {"topologyKey": ZONE, "jobs": ["worker"]}})
    await_ready(home, "d")
    found = places(home, "d")
    assert found["d-worker-0"] == found["d-worker-1"] != found["d-ps-0"]


def test_colocated_gang_has_its_places_in_one_zone(home):
    home.launch("c", {"chief": gpu_tasks(1, 4), "worker": gpu_tasks(3, 4)}, scheduling={"gang": {}, **NEAR})
    await_ready(home, "c")
    zone = the_only(places(home, "c"), count=4)
    assert await_back(home, "c", "c-chief-0") == zone


def test_colocated_gang_finds_the_only_zone_with_room(home):
    """Each node of two zones has four GPUs left: all nodes can take the first task, and one zone all three."""
    cordon(home, "c")
    home.launch("others", {"worker": gpu_tasks(4, 4)}, scheduling={"spread": [{"topologyKey": HOST}]})
    await_ready(home, "others")
    cordon(home)
    for name in ("first", "second"):
        home.launch(name, {"worker": gpu_tasks(3, 4)}, scheduling={"gang": {}, **NEAR})
        await_ready(home, name)
        assert the_only(places(home, name), count=3) == "c"
        home.remove(name)
        eventually(lambda of=name: not home.pods_of(of), what="its places are free")


def test_colocated_gang_that_fits_no_zone_reserves_no_node(home):
    """Five tasks of a host each, in zones of two hosts: none is scheduled, and another cluster gets all nodes."""
    home.launch("large", {"worker": gpu_tasks(5, 8)}, scheduling={"gang": {}, **NEAR})
    told = home.await_condition("large", "Ready", status="False", reason="WaitingForGang")["message"]
    assert told.startswith("gang large.0 waits until 5 tasks can be scheduled together")
    home.launch("other", {"worker": gpu_tasks(6, 8)})
    await_ready(home, "other")
    assert places(home, "large") == {}


def test_edit_moves_the_tasks_by_the_rollout_strategy(home):
    """They were in several zones; they are replaced one after the other, and are in one zone afterwards."""
    rolling = {"type": "RollingUpdate"}
    home.launch("c", {"worker": gpu_tasks(6, 1)}, updateStrategy=rolling)
    await_ready(home, "c")
    assert len(set(places(home, "c").values())) > 1
    before = {name: home.uid(name) for name in home.pods_of("c")}
    home.edit("c", {"scheduling": NEAR})
    home.await_event("c", "TemplateChanged")
    eventually(
        lambda: {name: home.uid(name) for name in home.pods_of("c")},
        lambda now: now.keys() == before.keys() and not set(now.values()) & set(before.values()),
        what="each task has another pod",
    )
    await_ready(home, "c")
    the_only(places(home, "c"), count=6)
    # An edit of other scheduling fields does not replace pods.
    before = {name: home.uid(name) for name in home.pods_of("c")}
    home.edit("c", {"scheduling": {"colocate": {"jobs": ["worker"]}}})
    home.await_settled("c")
    assert {name: home.uid(name) for name in home.pods_of("c")} == before
