"""The world of the tests that need TensorFlow: real task processes on loopback, no Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "resolver"))
sys.path.append(str(Path(__file__).resolve().parent.parent))

from loopback_cluster import LoopbackCluster
from running_program import RunningProgram

pytest_plugins = ["support.skips"]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., LoopbackCluster]]:
    """Makes loopback clusters whose processes end with the test."""
    made: list[LoopbackCluster] = []

    def make(**arguments) -> LoopbackCluster:
        made.append(LoopbackCluster(tmp_path / f"cluster-{len(made)}", **arguments))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def parameter_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    """Two workers and two ps that serve, filtered as the example is; each test is its chief in turn."""
    cluster = LoopbackCluster(
        tmp_path_factory.mktemp("parameter-servers"),
        {"chief": 1, "worker": 2, "ps": 2},
        filters={"worker": ("/job:ps/task:0", "/job:chief"), "ps": ("/job:worker", "/job:chief")},
    )
    cluster.serve_all("worker", "ps")
    yield cluster
    cluster.end()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProgram]:
    """A program that runs on two workers and a ps, one for all tests; the first finds TensorFlow's own coordinator."""
    cluster = LoopbackCluster(
        tmp_path_factory.mktemp("elastic"),
        {"chief": 1, "worker": 2, "ps": 1},
        filters={"worker": ("/job:ps", "/job:chief"), "ps": ("/job:worker", "/job:chief")},
        reach={"worker": 8, "ps": 2},
    )
    cluster.serve_all("worker", "ps")
    running = RunningProgram(cluster)
    yield running
    running.end()
    cluster.end()


@pytest.fixture
def two_workers(program: RunningProgram) -> Iterator[None]:
    """Each test begins with two workers and one ps."""
    yield
    program.reset(worker=2, ps=1)


@pytest.fixture
def third(program: RunningProgram) -> int:
    """A third worker that takes closures; gives its process."""
    process = program.grow()
    program.do("resize(coordinator, resolver, timeout=60)")
    return process
