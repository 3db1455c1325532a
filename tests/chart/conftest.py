"""The world of the chart's tests: the real helm, and a bare API server that does not know the TFCluster kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from rendering import Helm


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The helm of the test cluster."""
    from local_kubernetes import binaries

    return Helm(binaries.helm(), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory):
    """A control plane of its own: that of the session knows the TFCluster kind already."""
    from local_kubernetes.control_plane import start

    plane = start(Path(tmp_path_factory.mktemp("bare-server")))
    yield plane
    plane.stop()
