"""startAfter: jobs wait for other jobs, until these are ready, and only once."""

import pytest
from support.world import task_names

pytestmark = pytest.mark.usefixtures("operator")

AFTER_PS = {"worker": {"replicas": 2, "startAfter": ["ps"]}, "ps": {"replicas": 2}}


def test_start_waits_until_every_task_is_ready(world, kubelet):
    world.launch("c", AFTER_PS)
    world.await_pods_of("c", task_names("c", ps=2))
    told = world.await_condition("c", "Ready", status="False", reason="WaitingForJob")
    assert "job worker starts after ps (0 of 2 ready)" in told["message"]
    kubelet.run("c-ps-1")
    world.await_status("c", lambda s: s["jobs"]["ps"]["ready"] == 1, what="one ps is ready")
    assert "ps (1 of 2 ready)" in world.condition("c", "Ready")["message"]
    assert sorted(world.pods_of("c")) == task_names("c", ps=2)

    kubelet.run("c-ps-0")

    world.await_pods_of("c", task_names("c", ps=2, worker=2))
