"""Fixtures of the tests that need TensorFlow: real task processes on loopback, no Kubernetes."""

import contextlib
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "resolver"))
sys.path += [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent.parent)]

from loopback_cluster import LoopbackCluster
from running_program import RunningProgram

pytest_plugins = ["support.skips"]

#: TensorFlow 2.21 reads an element of a vector while another thread lets the vector grow: Run() and Instantiate() of
#: EagerClusterFunctionLibraryRuntime, when a new worker gets its first functions.  The request is garbage then.
RACE = "Unable to parse request"
FAILED = pytest.StashKey[bool]()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test a second time if this race of TensorFlow, which is rare, made it fail."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed and RACE in report.longreprtext for report in reports):
        item._initrequest()
        item.stash[FAILED] = False
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note for the fixtures whether the test has failed."""
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


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
    yield programs[-1]
    with contextlib.ExitStack() as broken:
        broken.callback(programs[-1].end)
        if not request.node.stash[FAILED]:
            programs[-1].reset(worker=2, ps=1)
            broken.pop_all()


@pytest.fixture
def third(program: RunningProgram) -> int:
    """A third worker that accepts closures; returns its process."""
    process = program.grow()
    program.do("resize(coordinator, resolver, timeout=60)")
    return process
