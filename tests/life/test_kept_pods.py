"""Failed pods that are kept for their logs, and the task's next pod."""

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
