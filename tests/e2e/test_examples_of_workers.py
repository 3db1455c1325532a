"""The examples of other programs, images and autoscalers, under the Pod Security Standard `restricted`."""

import re
from collections.abc import Callable

import pytest
from live_world import TRAINING_DEADLINE_SECONDS, LiveWorld
from support.objects import Kind
from support.waiting import eventually

pytestmark = pytest.mark.exhaustive

AUTOSCALERS = Kind("autoscaling/v2", "horizontalpodautoscalers")


@pytest.fixture(scope="module")
def world(apply_example: Callable[[str], LiveWorld]) -> LiveWorld:
    """The examples of this module, in parallel."""
    apply_example("tf-config.yaml")
    apply_example("custom-image.yaml")
    apply_example("data-service.yaml")
    return apply_example("hpa.yaml")


@pytest.mark.parametrize("name", ["digits-tf-config", "digits-custom"])
def test_example_of_equal_workers_learns_and_ends(world: LiveWorld, name: str):
    world.await_success(name)

    for index in (0, 1):
        log = world.logs(f"{name}-worker-{index}")
        assert "2 replicas" in log
        assert "\ndone\n" in log
        assert max(map(float, re.findall(r"accuracy (0\.\d+)", log))) >= 0.8
    assert world.status(name)["restarts"] == 0


def test_data_service_example_learns_and_ends(world: LiveWorld):
    world.await_success("digits-data")

    log = world.logs("digits-data-chief-0")
    assert "the data come from digits-data-dispatcher-0.digits-data." in log
    assert "\ndone\n" in log
    assert max(map(float, re.findall(r"accuracy (0\.\d+)", log))) >= 0.8


def test_hpa_example_scales_the_workers(world: LiveWorld):
    """The autoscaler raises the workers to its minimum; scaling by load is Kubernetes' own."""
    eventually(
        lambda: world.cluster("digits-scaled")["spec"]["jobs"]["worker"]["replicas"],
        lambda replicas: replicas == 2,
        what="the autoscaler asks for two workers",
    )
    able = {
        c["type"]: (c["status"], c["reason"])
        for c in world.demand(AUTOSCALERS, "digits-scaled")["status"]["conditions"]
    }
    assert able["AbleToScale"][0] == "True", able

    two = r"training with 2 workers|cluster epoch \d+: .*\+worker/1"
    eventually(
        lambda: world.logs("digits-scaled-chief-0"),
        lambda log: re.search(rf"^({two})[^\0]*^pass \d+:", log, re.MULTILINE),
        what="the program trains with two workers",
        within=TRAINING_DEADLINE_SECONDS,
    )
    world.remove("digits-scaled")
