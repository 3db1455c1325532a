"""Lives of clusters: in memory and virtual time, or with TFCLUSTER_WORLD=server on a real API server."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support import clock
from support.memory_world import MemoryAudit, MemoryObjects, MemoryOperator, Plane

_HERE: Final = Path(__file__).parent
_IN_MEMORY: Final = os.environ.get("TFCLUSTER_WORLD", "memory") == "memory"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that the world in memory cannot run, or mark as exhaustive those that it covers."""
    lives = [item for item in items if _HERE in item.path.parents]
    of_a_server = {item for item in lives if item.get_closest_marker("server")}
    if _IN_MEMORY:
        config.hook.pytest_deselected(items=list(of_a_server))
        items[:] = [item for item in items if item not in of_a_server]
        return
    for item in lives:
        if item not in of_a_server:
            item.add_marker("exhaustive")


if _IN_MEMORY:

    @pytest.fixture(scope="session")
    def plane() -> Iterator[Plane]:
        found = Plane()
        yield found
        found.close()

    # If the folder has no __init__.py, the scope "package" lasts until the end of the run.
    @pytest.fixture(scope="module", autouse=True)
    def virtual_time(plane: Plane) -> Iterator[None]:
        """Run the tests of this folder by the clock of their API server."""
        with clock.instead(plane):
            yield

    @pytest.fixture(scope="session")
    def objects(plane: Plane) -> MemoryObjects:
        return MemoryObjects(plane)

    @pytest.fixture(scope="session")
    def audit(plane: Plane) -> MemoryAudit:
        return MemoryAudit(plane)

    @pytest.fixture(scope="session")
    def operator_process(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryOperator]:
        found = MemoryOperator(plane, tmp_path_factory.mktemp("operator") / "operator.log")
        yield found
        found.close()

    @pytest.fixture(scope="session")
    def garbage_collector() -> None:
        """The world in memory always has one."""
