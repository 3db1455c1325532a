"""The demo, ended by somebody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import GUARD, eventually
from unit.local_world import processes_with

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_ended_demo_leaves_nothing(tmp_path: Path, number: int) -> None:
    """A closed terminal and a SIGTERM end the cluster, and its folder goes."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "scripts.demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: list(tmp_path.rglob("kubeconfig")), what="the cluster runs")
        demo.send_signal(number)
        assert demo.wait(GUARD) == 128 + number
    finally:
        demo.kill()
        demo.wait(GUARD)

    assert list(tmp_path.glob("tfcluster-demo-*")) == []
    eventually(lambda: not list(processes_with(str(tmp_path))), what="no process of it is left")
