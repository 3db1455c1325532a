"""A real training that is suspended and resumed continues from its checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from live_world import BROOM, TRAINING_DEADLINE_SECONDS, LiveWorld
from resize_programs import with_folder
from support.objects import NODES, TFCLUSTERS, Object
from support.waiting import eventually

pytestmark = pytest.mark.exhaustive

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "parameter-server.yaml"
CHIEF = "digits-chief-0"


def with_checkpoints(manifest: Object, *, folder: str, node: str) -> Object:
    """Return the example's chief a folder that outlives its pod, on one node; one worker is enough."""
    jobs = manifest["spec"]["jobs"]
    jobs["worker"]["replicas"] = 1
    chief = with_folder(jobs["chief"]["template"], node=node)
    chief["spec"]["containers"][0]["command"] += ["--checkpoints", folder]
    return manifest


@pytest.fixture
def training(world: LiveWorld, kubectl: Any, training_image: str) -> Iterator[LiveWorld]:
    """The parameter-server example with checkpoints, training; the folder on the node goes afterwards."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("localhost/tfcluster-training:dev", training_image)
    folder = f"/kept/tfcluster-{world.namespace}"
    node = world.objects.list(NODES)[0]["metadata"]["labels"]["kubernetes.io/hostname"]
    world.apply(with_checkpoints(yaml.safe_load(text), folder=folder, node=node))
    await_passes(world, 3)
    yield world
    # A training that continues writes into the folder that is being removed.
    suspend(world, kubectl, wanted=True)
    eventually(world.pods, lambda pods: not pods, what="nothing trains")
    world.launch_broom(node=node)
    world.run(BROOM, "rm", "-rf", folder)


def passes(log: str) -> list[int]:
    """Read the numbers of the passes that a chief's log tells of."""
    return [int(number) for number in re.findall(r"^pass (\d+):", log, re.MULTILINE)]


def await_passes(world: LiveWorld, at_least: int) -> str:
    """Return the chief's log once it tells of a pass of this number or a later one."""
    return eventually(
        lambda: world.logs(CHIEF),
        lambda log: max(passes(log), default=0) >= at_least,
        what=f"the chief has made pass {at_least}",
        within=TRAINING_DEADLINE_SECONDS,
    )


def suspend(world: LiveWorld, kubectl: Any, *, wanted: bool) -> None:
    change = f'{{"spec": {{"suspend": {str(wanted).lower()}}}}}'
    patched = kubectl("-n", world.namespace, "patch", "tfc", "digits", "--type=merge", "-p", change)
    assert patched.returncode == 0, patched.stderr


def test_resumed_training_goes_on_from_its_checkpoint(training, kubectl):
    """Suspending takes every pod of a training away; resumed, the chief continues where its checkpoint ends."""
    made = max(passes(training.logs(CHIEF)))
    started = training.status("digits")["startTime"]
    service = training.services()["digits"]["metadata"]["uid"]

    suspend(training, kubectl, wanted=True)
    waited = kubectl("-n", training.namespace, "wait", "tfc/digits", "--for=condition=Suspended", "--timeout=120s")
    assert waited.returncode == 0, waited.stderr
    eventually(training.pods, lambda pods: not pods, what="no pod is left")
    resting = training.await_status("digits", lambda s: "startTime" not in s, what="the start time is forgotten")
    assert (resting["restarts"], resting["readyTasks"]) == (0, 0)

    suspend(training, kubectl, wanted=False)
    log = await_passes(training, made + 1)

    # A pass is told before it is saved, so that the last one may be made again.
    assert min(passes(log)) >= made > 1
    assert training.status("digits")["startTime"] > started
    assert training.services()["digits"]["metadata"]["uid"] == service
    assert training.demand(TFCLUSTERS, "digits")["status"]["restarts"] == 0
