"""The first second of a process: signals before the imports, and exit codes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.waiting import GUARD, eventually

import tfcluster_resolver
from tfcluster_operator import process as operator_process
from tfcluster_operator.kube.election import LeaseLostError

_ROOT = Path(__file__).resolve().parents[2]


def test_sigterm_is_heeded_before_the_slow_imports(tmp_path: Path):
    """A pod that is deleted right after its start ends immediately and with 0."""
    (tmp_path / "uvloop.py").write_text("import signal\n\nsignal.pause()\n", encoding="utf-8")
    paths = os.pathsep.join(str(path) for path in (tmp_path, _ROOT / "operator", _ROOT / "resolver"))
    process = subprocess.Popen(
        [sys.executable, "-m", "tfcluster_operator", "--all-namespaces"], env={**os.environ, "PYTHONPATH": paths}
    )
    try:
        eventually(lambda: handles(process.pid, signal.SIGTERM), what="the process handles SIGTERM")
        process.terminate()
        assert process.wait(GUARD) == 0
    finally:
        process.kill()
        process.wait()


def test_missing_libraries_are_reported_and_version_still_works():
    """Without extras, the operator prints its version, and what to install to run it."""
    version, run = begin_without_libraries("--version"), begin_without_libraries("--all-namespaces")
    assert (version.returncode, version.stdout) == (0, f"tfcluster-operator {tfcluster_resolver.__version__}\n")
    assert run.returncode == 1
    assert run.stderr == "kopf is not installed: pip install 'tfcluster[operator]' brings what the operator needs\n"


def test_lost_lease_ends_the_process_with_its_reason(monkeypatch, caplog):
    async def lose(_: object) -> None:
        raise LeaseLostError("the lease was lost: no renewal within 10 s")

    codes: list[int] = []
    monkeypatch.setattr(operator_process, "run_parts", lose)
    monkeypatch.setattr(operator_process.logging, "shutdown", lambda: None)
    monkeypatch.setattr(operator_process.os, "_exit", codes.append)
    asyncio.run(operator_process._run(None))
    assert codes == [1]
    (line,) = caplog.records
    assert line.message == "the operator ends: the lease was lost: no renewal within 10 s"
    assert line.exc_info is None


def begin_without_libraries(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(_ROOT / part) for part in ("operator", "resolver"))
    return subprocess.run(
        [sys.executable, "-S", "-m", "tfcluster_operator", *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal, from the kernel."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (caught,) = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(int(caught, 16) & 1 << (number - 1))
