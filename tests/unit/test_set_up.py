"""The set-up of the demo: which steps run in parallel, and how steps run, report and fail."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from scripts import set_up
from scripts.steps import Run, Step, StepError

#: Parts of programs: write the process's number into a file atomically; wait until a file exists.
LEAVE = "import os, time; open('{0}.part', 'w').write(str(os.getpid())); os.rename('{0}.part', '{0}')\n"
AWAIT = "import os, time\nwhile not os.path.exists('{0}'): time.sleep(.01)\n"


@pytest.fixture
def told() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def go(tmp_path, told):
    """Runs steps that are Python programs, by their names."""

    def run(steps, **programs) -> Run:
        console = Console(file=told, width=80)
        made = Run(steps, lambda step: (sys.executable, "-c", programs[step.name]), tmp_path / "logs", console)
        made.go()
        return made

    return run


@pytest.mark.parametrize("cluster", ["node", "kind", "current"])
def test_every_step_can_be_done(cluster, tmp_path, told):
    steps = set_up.steps(cluster)
    assert {step.name for step in steps} <= set(set_up._ACTIONS)
    Run(steps, lambda _: (), tmp_path, Console(file=told))


def test_failed_step_ends_those_beside_it_and_says_its_last_words(go, told, tmp_path):
    """The end of the step's output is in the message; a running step is ended, and a later one never runs."""
    running, later = str(tmp_path / "running"), str(tmp_path / "later")
    with pytest.raises(StepError, match=r"(?s)Bad ended with status 1:\nno space left"):
        go(
            [Step("bad", "Bad"), Step("slow", "Slow"), Step("later", "Later", after=("bad",))],
            bad=f"{AWAIT.format(running)}raise SystemExit('no space left')",
            slow=f"{LEAVE.format(running)}time.sleep(300)",
            later=LEAVE.format(later),
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path(running).read_text()), 0)
    assert not Path(later).exists()
    assert told.getvalue() == ""
