"""The metrics of the real process on a real API server; the simulation compares every figure with the objects."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lives import launch_running
from support.metrics import Scrape, documented, families
from support.operator_process import OperatorProcess
from support.waiting import eventually


@pytest.fixture
def process(operator_process: OperatorProcess, control_plane, namespace: str, tmp_path) -> Iterator[OperatorProcess]:
    """An operator of one namespace, so that other namespaces of the session are not counted."""
    operator_process.kill()
    process = OperatorProcess(kubeconfig=Path(control_plane.kubeconfig), log=tmp_path / "operator.log")
    process.start(arguments=("--namespace", namespace))
    yield process
    process.kill()


def test_clusters_and_tasks_are_counted_by_what_they_are(process: OperatorProcess, world, kubelet):
    launch_running(world, kubelet, "runs", {"chief": {}, "worker": {"replicas": 3}})
    world.launch("rests", {"worker": {"replicas": 4}}, suspend=True)
    world.launch("starts", {"master": {"replicas": 2}})
    world.await_condition("runs", "Ready", status="True")
    world.await_condition("rests", "Suspended", status="True")
    world.await_condition("starts", "Ready", status="False", reason="TasksNotReady")

    def scrape() -> Scrape:
        text, _ = process.scrape()
        assert families(text).keys() == documented().keys()
        return Scrape(text)

    now = eventually(
        scrape,
        lambda now: now.value("tfcluster_not_ready_oldest_seconds") >= 1,
        what="the unready one grows old",
    )
    assert now.not_zero("tfcluster_clusters_not_ready") == {("TasksNotReady",): 1}
    assert now.not_zero("tfcluster_tasks") == {
        **{("chief", state): 1 for state in ("declared", "created", "ready")},
        **{("worker", state): 3 for state in ("created", "ready")},
        ("worker", "declared"): 3 + 4,
        **{("master", state): 2 for state in ("declared", "created")},
    }
    assert now.value("tfcluster_leader") == 1
