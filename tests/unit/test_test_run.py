"""The run of all stages: it continues after a stage that failed, and kills a stage that hangs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.waiting import eventually

from scripts import test_run

MAKEFILE = """\
builds first good beside:
bad:
	exit 3
hangs:
	trap '' TERM; echo $$$$ > new; mv new pid; while :; do sleep 1; done
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(test_run, "ROOT", tmp_path)

    def run(*lanes) -> int:
        monkeypatch.setattr(test_run, "PARTS", {"test": lanes})
        return asyncio.run(test_run.main(["test"]))

    return run


def test_all_stages_run_and_each_failure_is_named(run, capsys):
    assert run((("first",),), (("bad", "TESTS=not exhaustive"), ("good",)), (("beside",),)) == 1

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-6:]] == ["stage", "first", "bad", "good", "beside", "all"]
    assert lines[-4].endswith("make bad 'TESTS=not exhaustive'")


def test_stages_that_pass_make_a_run_that_passes(run):
    assert run((("good",),)) == 0


def test_stage_that_hangs_is_killed_with_all_that_it_started(run, monkeypatch, tmp_path):
    class Expired(asyncio.Timeout):
        """Ends when the stage hangs."""

        async def __aenter__(self):
            while not (tmp_path / "pid").exists():  # noqa: ASYNC110 - another program makes it
                await asyncio.sleep(0)
            entered = await super().__aenter__()
            self.reschedule(asyncio.get_running_loop().time())
            return entered

    monkeypatch.setattr(test_run.asyncio, "timeout", lambda _: Expired(None))

    assert run((("hangs",),)) == 1

    # A killed process can still run for a moment.
    eventually(lambda: has_ended((tmp_path / "pid").read_text().strip()), what="what the stage started has ended")


def has_ended(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
