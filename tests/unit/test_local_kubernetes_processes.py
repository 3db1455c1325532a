"""The test cluster's programs: found by their mark, ended for certain, and never mistaken for others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import eventually

from local_kubernetes import processes
from local_kubernetes.control_plane import stop_orphans

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs are found in /proc")


@pytest.fixture
def state(tmp_path) -> Iterator[Path]:
    """A state folder; its programs end with the test."""
    yield tmp_path
    processes.stop(processes.running(tmp_path))


def names(state: Path) -> list[str]:
    return sorted(program.name for program in processes.running(state))


def started(state: Path, *programs: str) -> None:
    eventually(lambda: names(state), lambda found: found == sorted(programs), what="the programs run")


def test_processes_finds_what_it_launched_and_nothing_else(state):
    """A program is found by its state folder; one that another folder's mark names, or no mark, is not."""
    (state / "other").mkdir()
    processes.launch(["sleep", "1000"], name="one", state=state)
    processes.launch(["sleep", "1000"], name="two", state=state / "other")
    unmarked = subprocess.Popen(["sleep", "1000"])
    try:
        started(state, "one")
        started(state / "other", "two")
        assert unmarked.pid not in {program.pid for program in processes.running()}
    finally:
        unmarked.kill()
        unmarked.wait()
        processes.stop(processes.running(state / "other"))


def test_processes_of_a_dead_owner_are_orphans(state):
    """Programs whose owner has died are ended; those of a living owner, or of none, stay."""
    ended = subprocess.Popen(["true"])
    owner = f"{ended.pid}:1"
    ended.wait()
    processes.launch(["sleep", "1000"], name="orphan", state=state, owner=owner)
    processes.launch(["sleep", "1000"], name="child", state=state, owner=processes.identity(os.getpid()))
    processes.launch(["sleep", "1000"], name="free", state=state)
    # Another start on this machine may end the orphan before us, so it is not waited for.
    eventually(lambda: names(state), lambda found: {"child", "free"} <= set(found), what="the programs run")
    stop_orphans()
    assert names(state) == ["child", "free"]
