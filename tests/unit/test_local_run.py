"""`tfcluster local run`: a manifest's tasks as processes, from their start to the verdict, and nothing left behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.waiting import eventually
from unit.local_world import Run, cluster, job, processes_with

#: Says whom it sees, and ends well.
SEES = """
from tfcluster_resolver import TFClusterResolver
print("sees", TFClusterResolver().cluster_spec().as_dict())
"""
#: Goes on for ever, with a process below it that has left its group and ignores SIGTERM.
LINGERS = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
below = subprocess.Popen(["python3", "-c", "import time; time.sleep(600)"], start_new_session=True)
print("lingers", flush=True)
time.sleep(600)
"""
WAITS = "import time; print('waits', flush=True); time.sleep(600)"


def test_tasks_see_each_other_at_addresses_of_this_machine(tmp_path: Path) -> None:
    """A chief and two workers resolve one cluster on 127.0.0.1; the chief's success ends it with exit code 0."""
    run = Run(tmp_path, cluster(jobs={"chief": job(SEES), "worker": job(SEES + WAITS, replicas=2)}))

    assert run.end() == 0, run.err
    seen = {line.partition("sees ")[2] for line in run.out.splitlines() if "sees " in line}
    assert len(seen) == 1
    spec = seen.pop()
    assert "'chief': ['127.0.0.1:" in spec
    assert spec.count("127.0.0.1:") == 3
    assert "small succeeded" in run.err
    assert [path for path in run.state.rglob("*") if path.is_file() and ".ports" not in path.parts] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_everything(tmp_path: Path, number: int, code: int) -> None:
    """Ctrl-C, SIGTERM and a closed terminal end all processes, and the exit code says which it was."""
    run = Run(tmp_path, cluster(jobs={"worker": job(WAITS, replicas=2)}))
    run.await_line("waits")

    run.signal(number)

    assert run.end() == code
    assert list(processes_with(str(run.state))) == []


def test_nothing_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    """After SIGKILL of the run no process of a task is left, whatever its program did to be left alone."""
    run = Run(tmp_path, cluster(jobs={"worker": job(LINGERS)}))
    run.await_line("lingers")
    assert len(list(processes_with(str(run.state)))) >= 2

    run.signal(signal.SIGKILL)
    run.end()

    eventually(lambda: list(processes_with(str(run.state))), lambda left: left == [], what="nothing is left")
