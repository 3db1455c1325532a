"""The set-up of the demo: which steps run beside which, and how steps run, are told of, and fail."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from scripts import set_up
from scripts.steps import Run, Step, StepError

#: Parts of programs: leave the process's number in a file, at once; wait until a file is there.
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


def beside(cluster, name) -> set[str]:
    """The steps that may run at the same time as one: neither has to wait for the other."""
    steps = {step.name: step for step in set_up.steps(cluster)}

    def before(one) -> set[str]:
        return {one} | {earlier for after in steps[one].after for earlier in before(after)}

    return {other for other in steps if name not in before(other) and other not in before(name)}


@pytest.mark.parametrize(
    ("cluster", "name", "expected"),
    [
        pytest.param(
            "node",
            "kubernetes",
            {"packages", "tools", "operator image", "training image"},
            id="packages, downloads and images are made while Kubernetes is compiled",
        ),
        pytest.param("node", "dns", {"packages", "tools", "operator image", "training image"}, id="after Kubernetes"),
        pytest.param("node", "packages", {"kubernetes", "tools", "dns"}, id="images are built by what packages bring"),
        pytest.param("node", "operator", {"training image", "training"}, id="TensorFlow is loaded meanwhile"),
        pytest.param("kind", "kubernetes", {"packages", "tools", "operator image", "training image"}, id="kind"),
        pytest.param("current", "cluster", {"operator image", "training image"}, id="somebody's cluster"),
    ],
)
def test_steps_run_beside_what_they_do_not_need(cluster, name, expected):
    """The set-up takes as long as its longest chain, not as all its steps."""
    assert beside(cluster, name) == expected


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param("node", {"packages", "kubernetes", "tools", "dns"}, id="our node"),
        pytest.param("kind", {"packages", "kubernetes", "tools"}, id="kind brings its own CoreDNS"),
        pytest.param("current", {"tools"}, id="nothing is compiled for somebody's cluster"),
    ],
)
def test_cluster_waits_for_its_programs_alone(cluster, expected):
    steps = {step.name: step for step in set_up.steps(cluster)}
    assert set(steps["cluster"].after) == expected


@pytest.mark.parametrize("cluster", ["node", "kind", "current"])
def test_every_step_can_be_done(cluster, tmp_path, told):
    steps = set_up.steps(cluster)
    assert {step.name for step in steps} <= set(set_up._ACTIONS)
    Run(steps, lambda _: (), tmp_path, Console(file=told))


def test_failed_step_ends_those_beside_it_and_says_its_last_words(go, told, tmp_path):
    """What the step wrote last is in the message; one that runs is ended, and one that would come later never runs."""
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


def test_unknown_kind_of_cluster_is_refused_in_words(monkeypatch, capsys):
    monkeypatch.setenv("TFCLUSTER_KUBERNETES", "minikube")
    assert set_up.main([]) == 1
    assert "TFCLUSTER_KUBERNETES=minikube: known are node, kind, current" in capsys.readouterr().err
