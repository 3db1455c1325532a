"""Fixtures of the tests that need TensorFlow: real task processes on loopback, no Kubernetes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "resolver"))
sys.path += [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent.parent)]

from loopback_cluster import LoopbackCluster
from running_program import RunningProgram

pytest_plugins = ["support.skips"]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., LoopbackCluster]]:
    made: list[LoopbackCluster] = []

    def make(**arguments) -> LoopbackCluster:
        made.append(LoopbackCluster(tmp_path / f"cluster-{len(made)}", **arguments))
        return made[-1]

    yield make
    for one in made:
        one.end()
        print(one.logs())  # noqa: T201 - pytest shows it where the test failed


@pytest.fixture(scope="module")
def parameter_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    """Two workers and two ps that serve, with the example's filters; each test acts as the chief in turn."""
    cluster = LoopbackCluster(
        tmp_path_factory.mktemp("parameter-servers"),
        {"chief": 1, "worker": 2, "ps": 2},
        filters={"worker": ("/job:ps/task:0", "/job:chief"), "ps": ("/job:worker", "/job:chief")},
    )
    cluster.serve_all("worker", "ps")
    yield cluster
    cluster.end()


@pytest.fixture(scope="session")
def programs() -> Iterator[list[RunningProgram]]:
    """The started programs; the last one can serve several tests."""
    started: list[RunningProgram] = []
    yield started
    for one in started:
        one.end()


@pytest.fixture
def program(
    request: pytest.FixtureRequest, programs: list[RunningProgram], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningProgram]:
    """A program on two workers and a ps: that of the previous test, unless it failed."""
    if not programs or not programs[-1].is_alive():
        cluster = LoopbackCluster(
            tmp_path_factory.mktemp("elastic"),
            {"chief": 1, "worker": 2, "ps": 1},
            filters={"worker": ("/job:ps", "/job:chief"), "ps": ("/job:worker", "/job:chief")},
            reach={"worker": 8, "ps": 2},
        )
        cluster.serve_all("worker", "ps")
        programs.append(RunningProgram(cluster))
    failed = request.session.testsfailed
    yield programs[-1]
    with contextlib.ExitStack() as broken:
        broken.callback(programs[-1].end)
        if request.session.testsfailed == failed:
            programs[-1].reset(worker=2, ps=1)
            broken.pop_all()


@pytest.fixture
def third(program: RunningProgram) -> int:
    """A third worker that accepts closures; returns its process."""
    process = program.grow()
    program.do("resize(coordinator, resolver, timeout=60)")
    return process
