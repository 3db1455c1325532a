"""The run of all stages: it continues after a stage that failed, and kills a stage that hangs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.waiting import eventually

from scripts import test_run

MAKEFILE = """\
builds good:
bad:
	exit 3
hangs:
	trap '' TERM; echo $$$$ > new; mv new pid; while :; do sleep 1; done
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs stages of a small Makefile."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(test_run, "ROOT", tmp_path)

    def run(*stages) -> int:
        monkeypatch.setattr(test_run, "PARTS", {"test": stages})
        return test_run.main(["test"])

    return run


def test_all_stages_run_and_each_failure_is_named(run, capsys):
    assert run(("bad", "TESTS=not exhaustive"), ("good",)) == 1

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["stage", "bad", "good", "all"]
    assert lines[-3].endswith("make bad 'TESTS=not exhaustive'")


def test_stages_that_pass_make_a_run_that_passes(run):
    assert run(("good",)) == 0


def test_stage_that_hangs_is_killed_with_all_that_it_started(run, monkeypatch, tmp_path):
    wait = test_run.subprocess.Popen.wait

    def until_it_hangs(process, timeout=None):
        if timeout is None:
            return wait(process)
        while not (tmp_path / "pid").exists():
            assert process.poll() is None
        raise test_run.subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(test_run.subprocess.Popen, "wait", until_it_hangs)

    assert run(("hangs",)) == 1

    # A process that was killed may run for a moment yet.
    eventually(lambda: has_ended((tmp_path / "pid").read_text().strip()), what="what the stage started has ended")


def has_ended(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
