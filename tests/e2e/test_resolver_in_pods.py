"""The resolver in pods: failing GPUs, and the snippets of docs/how-to/write-a-program.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_world import LiveWorld
from resize_programs import COUNT_AND_WARNINGS
from support.guide import snippets
from support.waiting import eventually
from support.world import task_names
from task_programs import pod_template

GPU = "nvidia.com/gpu"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-program.md"


@pytest.fixture
def granted(world: LiveWorld, two_gpus: None) -> LiveWorld:  # noqa: ARG001 - skips where there are none
    """A running task with two GPUs."""
    template = pod_template(world.image, resources={"limits": {GPU: 2}})
    world.launch("c", {"worker": {"template": template}})
    world.await_ready("c")
    return world


@pytest.mark.alone
def test_lost_device_is_warned_of(granted, fake_devices):
    """Two granted GPUs count without a warning; if one fails, a warning has both numbers."""
    first, second = granted.run("c-worker-0", "printenv", "NVIDIA_VISIBLE_DEVICES").strip().split(",")
    assert first != second
    assert granted.python("c-worker-0", COUNT_AND_WARNINGS) == [{"GPU": 2}, []]

    fake_devices.sicken(first)
    _, told = eventually(
        lambda: granted.python("c-worker-0", COUNT_AND_WARNINGS),
        lambda found: found[0] == {"GPU": 1},
        what="one GPU is left",
    )

    (warning,) = told
    assert "has 1 healthy GPU devices" in warning
    assert "2 can be used in this process" in warning


# The guide's snippets that need a cluster.


@pytest.fixture
def mnist(world: LiveWorld) -> LiveWorld:
    """The guide's cluster, of tasks that listen."""
    world.launch_listeners(
        "mnist",
        {
            "chief": {},
            "worker": {"replicas": 2, "maxReplicas": 6, "deviceFilters": ["/job:ps", "/job:chief"]},
            "ps": {"deviceFilters": ["/job:worker", "/job:chief"]},
        },
    )
    world.await_ready("mnist")
    return world


def of_the_guide(test: str, language: str) -> list[str]:
    """Return the guide's snippets in a language that a test of this module covers."""
    return [one.text for one in snippets(GUIDE) if (one.proof(), one.language) == (test, language)]


def run_python(text: str, **place: Any) -> str:
    """Run a snippet in a separate process, outside of the cluster, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60, **place
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_notebook_reads_the_cluster(mnist, kubeconfig):
    """The guide's snippet for a notebook prints the workers' addresses, from outside of the cluster."""
    (text,) = of_the_guide("test_notebook_reads_the_cluster", "python")

    printed = run_python(text.replace("team-a", mnist.namespace), env={**os.environ, "KUBECONFIG": str(kubeconfig)})

    workers = [mnist.address(pod, cluster="mnist") for pod in task_names("mnist", worker=2)]
    assert printed == f"{workers}\n"
