"""Accelerators: the devices that the device plugin granted a pod, and their health, in the status and the resolver."""

import pytest
from live_world import LiveWorld
from support.waiting import eventually
from task_programs import pod_template

GPU = "nvidia.com/gpu"
COUNT = """
import json, sys
from tfcluster_resolver import TFClusterResolver
print(json.dumps(dict(TFClusterResolver().num_accelerators(*(() if len(sys.argv) < 2 else (sys.argv[1], 0))))))
"""

pytestmark = [pytest.mark.usefixtures("two_gpus"), pytest.mark.alone]


@pytest.fixture
def granted(world: LiveWorld) -> LiveWorld:
    """A running cluster with two GPUs in its worker."""
    template = pod_template(world.image, resources={"limits": {GPU: 2}})
    world.launch_listeners("c", {"chief": {}, "worker": {"template": template}})
    world.await_ready("c")
    return world


def devices(world: LiveWorld) -> list[str]:
    return world.run("c-worker-0", "printenv", "NVIDIA_VISIBLE_DEVICES").strip().split(",")


def await_gpus(world: LiveWorld, count: int) -> None:
    """Wait until the status, and the resolver in both pods, count this number of GPUs of the worker."""
    world.await_status("c", lambda s: s.get("accelerators") == count, what=f"the status counts {count} GPUs")
    for asked in (("c-worker-0",), ("c-worker-0", "worker"), ("c-chief-0", "worker")):
        eventually(
            lambda asked=asked: world.python(asked[0], COUNT, *asked[1:]),
            lambda found: found == {"GPU": count},
            what=f"the resolver in {asked[0]} counts {count} GPUs",
        )


def test_granted_devices_are_counted(granted):
    assert len(set(devices(granted))) == 2
    await_gpus(granted, 2)

    assert granted.status("c")["jobs"]["worker"]["accelerators"] == {GPU: 2}
    assert granted.python("c-chief-0", COUNT) == {}


def test_unhealthy_device_is_not_counted(granted, fake_devices):
    uids = granted.uids()
    sick = devices(granted)[0]
    await_gpus(granted, 2)

    fake_devices.sicken(sick)
    await_gpus(granted, 1)
    assert granted.view("c", "chief")["accelerators"]["worker"]["tasks"] == {"0": {GPU: 1}}
    fake_devices.heal()
    await_gpus(granted, 2)

    assert granted.uids() == uids
    assert granted.status("c")["epoch"] == 1
