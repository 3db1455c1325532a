"""A user edits a deleted pod."""

import pytest
from support.lives import await_another_pass, launch_running
from support.objects import PODS, STRATEGIC

pytestmark = pytest.mark.usefixtures("operator")


@pytest.mark.parametrize("exit_code", [143, 0])
def test_pod_that_was_deleted_and_then_edited_has_neither_failed_nor_succeeded(world, kubelet, exit_code):
    """The SIGTERM of its deletion ended it; the edit increments its generation, which proves nothing."""
    launch_running(world, kubelet, "c", {"worker": {"replicas": 1, "restartPolicy": "Never"}})
    world.await_condition("c", "Ready", status="True")
    name = "c-worker-0"
    world.delete(PODS, name)
    world.await_condition("c", "Ready", status="False")  # the operator has observed the deletion
    asked = world.demand(PODS, name)["metadata"]["generation"]
    world.objects.patch(
        PODS, world.namespace, name, {"status": {"observedGeneration": asked}}, subresource="status", content=STRATEGIC
    )
    kubelet.end_container(name, exit_code=exit_code)
    spec = {"tolerations": [*world.demand(PODS, name)["spec"].get("tolerations", ()), {"operator": "Exists"}]}
    world.patch(PODS, name, {"spec": spec})
    await_another_pass(world, "c")

    found = {kind: world.condition("c", kind)["status"] for kind in ("Failed", "Succeeded")}
    assert found == {"Failed": "False", "Succeeded": "False"}, world.condition("c", "Ready")
