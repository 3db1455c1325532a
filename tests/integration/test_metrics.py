"""The metrics of the real process on a real API server: counts of clusters, tasks and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.lives import launch_running
from support.metrics import Scrape, documented, families
from support.objects import PODS, TFCLUSTERS, Objects
from support.operator_process import OperatorProcess
from support.pods import StandInKubelet
from support.waiting import eventually
from support.world import World


class Observed:
    """An operator, and its metrics.

    Args:
        process: the operator.
    """

    def __init__(self, process: OperatorProcess) -> None:
        self.process = process

    def scrape(self) -> Scrape:
        text, _ = self.process.scrape()
        assert families(text).keys() == documented().keys()
        return Scrape(text)

    def until(self, accept: Callable[[Scrape], object], what: str) -> Scrape:
        return eventually(self.scrape, accept, what=what)


@pytest.fixture(scope="module")
def counted_world(objects: Objects, new_namespace: Callable[[], str]) -> World:
    return World(objects, new_namespace())


@pytest.fixture(scope="module")
def observed(
    operator_process: OperatorProcess, control_plane, counted_world: World, tmp_path_factory
) -> Iterator[Observed]:
    """An operator of one namespace, so that other namespaces of the session are not counted."""
    operator_process.kill()
    process = OperatorProcess(
        kubeconfig=Path(control_plane.kubeconfig), log=tmp_path_factory.mktemp("metrics") / "operator.log"
    )
    arguments = ("--namespace", counted_world.namespace, "--log-level", "debug", "--log-format", "json")
    process.start(arguments=arguments)
    yield Observed(process)
    process.kill()


@pytest.fixture
def world(counted_world: World, observed: Observed) -> Iterator[World]:
    """The counted namespace, without TFClusters at the start of each test."""
    yield counted_world
    for found in counted_world.objects.list(TFCLUSTERS, counted_world.namespace):
        counted_world.remove(found["metadata"]["name"])
    for found in counted_world.objects.list(PODS, counted_world.namespace):
        counted_world.objects.delete(PODS, counted_world.namespace, found["metadata"]["name"], grace_seconds=0)
    observed.until(lambda now: not now.not_zero("tfcluster_clusters"), "no TFCluster is left")


@pytest.fixture(scope="module")
def kubelet(counted_world: World) -> Iterator[StandInKubelet]:
    """The kubelet of the namespace; at its end, it deletes the pods."""
    stand_in = StandInKubelet(counted_world.objects, counted_world.namespace)
    yield stand_in
    stand_in.close()


def conditions_of(now: Scrape, condition: str) -> dict[str, float]:
    return {s: now.value("tfcluster_clusters", condition=condition, status=s) for s in ("True", "False", "Unknown")}


def test_clusters_and_tasks_are_counted_by_what_they_are(world, kubelet, observed):
    """A running, a suspended, a finished and an unready cluster: each condition, each task and the age of the last."""
    jobs = {"chief": {}, "worker": {"replicas": 3}, "ps": {}, "evaluator": {}, "my_data": {"replicas": 2}}
    pods = launch_running(world, kubelet, "runs", jobs)
    world.launch("rests", {"worker": {"replicas": 4}}, suspend=True)
    launch_running(world, kubelet, "ends", {"worker": {"replicas": 2}}, cleanPodPolicy="None")
    kubelet.succeed("ends-worker-0", "ends-worker-1")
    world.launch("starts", {"master": {"replicas": 2}})
    world.await_ended("ends", "Succeeded")
    world.await_condition("runs", "Ready", status="True")
    world.await_condition("starts", "Ready", status="False", reason="TasksNotReady")
    world.await_condition("rests", "Suspended", status="True")
    assert len(pods) == 8

    now = observed.until(
        lambda now: now.value("tfcluster_tasks", role="worker", state="ready") == 3, "all passes are made"
    )
    assert conditions_of(now, "Ready") == {"True": 2, "False": 2, "Unknown": 0}
    assert conditions_of(now, "Suspended") == {"True": 1, "False": 3, "Unknown": 0}
    assert conditions_of(now, "Succeeded") == {"True": 1, "False": 3, "Unknown": 0}
    assert conditions_of(now, "NameConflict") == {"True": 0, "False": 4, "Unknown": 0}
    assert now.not_zero("tfcluster_clusters_not_ready") == {("TasksNotReady",): 1}
    assert now.not_zero("tfcluster_tasks") == {
        ("chief", "ready"): 1,
        ("worker", "ready"): 3,
        ("ps", "ready"): 1,
        ("evaluator", "ready"): 1,
        ("other", "ready"): 2,
        ("worker", "idle"): 4,
        ("worker", "completed"): 2,
        ("master", "starting"): 2,
    }
    assert now.not_zero("tfcluster_clusters_finished_total") == {("TasksSucceeded",): 1}
    observed.until(lambda now: now.value("tfcluster_not_ready_oldest_seconds") >= 1, "the unready one grows old")

    kubelet.run("starts-master-0", "starts-master-1")
    world.await_condition("starts", "Ready", status="True")
    then = observed.until(lambda now: not now.not_zero("tfcluster_clusters_not_ready"), "all are ready")
    assert then.value("tfcluster_not_ready_oldest_seconds") == 0
    assert then.value("tfcluster_leader") == 1
