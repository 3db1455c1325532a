"""Fixtures of the release's tests: its files, and an empty API server."""

from pathlib import Path

import pytest
from release_world import build_release, copy_tree


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = copy_tree(tmp_path_factory.mktemp("checkout"))
    return build_release(checkout, tmp_path_factory.mktemp("release") / "dist")


@pytest.fixture(scope="session")
def version() -> str:
    from scripts.release import source

    return source.version()


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory):
    from local_kubernetes.control_plane import start

    plane = start(Path(tmp_path_factory.mktemp("bare-server")))
    yield plane
    plane.stop()
