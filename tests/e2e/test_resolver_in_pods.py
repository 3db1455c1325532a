"""The snippets of docs/how-to/write-a-program.md that need a cluster."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_world import LiveWorld
from support.guide import snippets
from support.world import task_names

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-program.md"


@pytest.fixture
def mnist(world: LiveWorld) -> LiveWorld:
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
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60, **place
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_notebook_reads_the_cluster(mnist, kubeconfig):
    (text,) = of_the_guide("test_notebook_reads_the_cluster", "python")

    printed = run_python(text.replace("team-a", mnist.namespace), env={**os.environ, "KUBECONFIG": str(kubeconfig)})

    workers = [mnist.address(pod, cluster="mnist") for pod in task_names("mnist", worker=2)]
    assert printed == f"{workers}\n"
