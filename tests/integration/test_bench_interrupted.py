"""A benchmark that is ended in the middle leaves nothing behind: no process, no folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import eventually

from local_kubernetes import processes

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]


def mentioned_by(folder: Path) -> list[str]:
    """Return the command lines of the processes that have a folder in their arguments or their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder).encode() in known:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended, or is not ours
            continue
    return found


@pytest.mark.usefixtures("control_plane")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_benchmark_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "of-the-benchmark"
    folder.mkdir()
    with (tmp_path / "output").open("wb") as output:
        bench = subprocess.Popen(
            [sys.executable, "-m", "bench", "--only", "create-1x100", "--scale", "0.1", "--pairs", "1000"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(
            lambda: " ".join(mentioned_by(folder)),
            lambda run: "tfcluster_operator" in run and "bench.bare_client" in run and "kube-apiserver" in run,
            what="the operator, the bare client and the control plane run",
            within=240,
        )
        bench.send_signal(number)
        code = bench.wait(120)
    finally:
        bench.kill()

    assert code == 130
    assert list(folder.iterdir()) == []
    assert mentioned_by(folder) == []
    assert [each for each in processes.running() if folder in each.state.parents] == []
