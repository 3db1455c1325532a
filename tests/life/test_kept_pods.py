"""Failed pods that are kept for their logs, and the task's next pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from support.lives import launch_running
from support.manifests import tfcluster
from support.objects import PODS, RESOURCE_QUOTAS
from support.waiting import eventually
from support.world import World, task_names

KEPT = "tfcluster.dev/kept"


def kept(world: World) -> set[str]:
    found = world.objects.list(PODS, world.namespace, selector=KEPT)
    return {pod["metadata"]["name"] for pod in found}


def await_kept(world: World, *names: str) -> None:
    eventually(lambda: kept(world), lambda found: found == set(names), what=f"{names} are kept")


def fail(world: World, kubelet: Any, name: str, after: Iterable[str], cluster: str = "c") -> None:
    """Fail a pod, and run the next one of its task."""
    kubelet.fail(name)
    world.await_pods_of(cluster, after)
    kubelet.run(*(pod for pod, found in world.pods_of(cluster).items() if KEPT not in found["metadata"]["labels"]))


@pytest.mark.usefixtures("operator")
def test_failed_pod_is_kept_and_the_next_one_takes_its_place(world, kubelet):
    """The default is one: its log can be read, its successor has its hostname, and the counts include only tasks."""
    world.apply(tfcluster("c").job("worker", replicas=2).build())
    kubelet.run(*world.await_pods_of("c", task_names("c", worker=2)))
    world.await_condition("c", "Ready", status="True")
    before = world.demand(PODS, "c-worker-1")

    kubelet.fail("c-worker-1", exit_code=3, message="no such file")
    pods = world.await_pods_of("c", [*task_names("c", worker=2), "c-worker-1-r1"])
    kubelet.run("c-worker-1-r1")
    world.await_condition("c", "Ready", status="True")

    failed, after = world.demand(PODS, "c-worker-1"), pods["c-worker-1-r1"]
    assert failed["metadata"]["uid"] == before["metadata"]["uid"]
    for field in ("hostname", "subdomain"):
        assert after["spec"][field] == before["spec"][field]
    labels = before["metadata"]["labels"]
    assert (after["metadata"]["labels"], failed["metadata"]["labels"]) == (labels, {**labels, KEPT: "true"})
    status = world.await_status("c", lambda s: s["jobs"]["worker"]["ready"] == 2, what="two are ready")
    told = status["jobs"]["worker"]
    assert (told["created"], told["failed"], told["restarts"], told["disruptions"]) == (2, 0, 1, 0)
    last = status["lastRestart"]
    assert (last["task"], last["pod"], last["exitCode"]) == ("worker-1", "c-worker-1", 3)
    assert "c-worker-1" in world.await_event("c", "FailedPodKept")["message"]

    kubelet.fail("c-worker-1-r1")
    world.await_pods_of("c", ["c-worker-0", "c-worker-1-r1", "c-worker-1-r2"])
    assert kept(world) == {"c-worker-1-r1"}
    assert world.await_event("c", "FailedPodsHistoryLimit")


@pytest.mark.usefixtures("operator")
def test_scope_keeps_only_what_has_failed(world, kubelet):
    """The other pods of the scope are deleted with it and re-created with their names."""
    launch_running(world, kubelet, "c", {"worker": {"replicas": 3, "restartScope": "Job"}}, failedPodsHistoryLimit=1)

    kubelet.fail("c-worker-1")
    eventually(
        lambda: [pod for pod in world.pods_of("c").values() if pod["metadata"].get("deletionTimestamp")],
        lambda going: len(going) == 2,
        what="the two others are asked to go",
    )
    kubelet.stop("c-worker-0", "c-worker-2")

    world.await_pods_of("c", [*task_names("c", worker=3), "c-worker-1-r1"])
    assert kept(world) == {"c-worker-1"}
    assert world.status("c")["restarts"] == 1


@pytest.mark.usefixtures("operator")
def test_what_is_declared_decides_what_stays(world, kubelet):
    """A lower limit and a smaller job delete kept pods; a suspension does not."""
    launch_running(world, kubelet, "c", {"worker": {"replicas": 2}}, failedPodsHistoryLimit=2)
    rest = ["c-worker-1"]
    fail(world, kubelet, "c-worker-0", [*rest, "c-worker-0", "c-worker-0-r1"])
    fail(world, kubelet, "c-worker-0-r1", [*rest, "c-worker-0", "c-worker-0-r1", "c-worker-0-r2"])
    fail(world, kubelet, "c-worker-1", ["c-worker-1", "c-worker-1-r1", "c-worker-0", "c-worker-0-r1", "c-worker-0-r2"])

    world.edit("c", {"failedPodsHistoryLimit": 1})
    await_kept(world, "c-worker-0-r1", "c-worker-1")
    world.scale("c", replicas=1)
    eventually(lambda: kubelet.stop("c-worker-1-r1") or "c-worker-1-r1" not in world.pods(), what="worker-1 is gone")
    await_kept(world, "c-worker-0-r1")
    world.edit("c", {"suspend": True})
    eventually(lambda: kubelet.stop("c-worker-0-r2") or "c-worker-0-r2" not in world.pods(), what="worker-0 is gone")
    world.await_condition("c", "Suspended", status="True")
    assert kept(world) == {"c-worker-0-r1"}
    world.edit("c", {"suspend": False})
    world.await_pods_of("c", ["c-worker-0-r1", "c-worker-0-r2"])
    world.edit("c", {"failedPodsHistoryLimit": 0})
    world.await_pods_of("c", ["c-worker-0-r2"])


@pytest.mark.server
@pytest.mark.usefixtures("operator")
def test_kept_pods_give_way_to_a_quota_that_counts_them(world, kubelet):
    """A quota of pods does not count ended pods; one of count/pods does, and the task has priority."""
    hard = {"pods": "2", "count/pods": "2"}
    world.objects.create(RESOURCE_QUOTAS, world.namespace, {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    eventually(
        lambda: world.demand(RESOURCE_QUOTAS, "few").get("status", {}).get("hard"),
        lambda found: found == hard,
        what="the quota is in force",
    )
    launch_running(world, kubelet, "c", {"worker": {"replicas": 2}}, failedPodsHistoryLimit=1)

    kubelet.fail("c-worker-0")
    pods = eventually(
        lambda: world.pods_of("c"),
        lambda found: len(found) == 2 and not any(one["status"]["phase"] == "Failed" for one in found.values()),
        what="the task has a pod again, and nothing is kept",
    )
    kubelet.run(*(name for name in pods if name != "c-worker-1"))
    world.await_condition("c", "Ready", status="True")
    assert world.status("c")["restarts"] == 1
