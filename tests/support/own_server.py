"""Fixtures for a module with a control plane of its own; it overrides the options for simulated nodes, for example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .control_planes import administrator_of, namespace_on, operator_on
from .objects import Objects
from .operator_process import OperatorProcess
from .world import World

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane


@pytest.fixture(scope="module")
def own_server_options() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module")
def own_server(own_server_options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A separate server without the CRD."""
    from local_kubernetes.control_plane import start

    with start(tmp_path_factory.mktemp("own-server"), **own_server_options) as plane:
        yield plane


@pytest.fixture(scope="module")
def own_objects(own_server: ControlPlane) -> Objects:
    return administrator_of(own_server)


@pytest.fixture(scope="module")
def own_operator_options() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module")
def own_operator(
    own_server: ControlPlane,
    own_objects: Objects,  # noqa: ARG001 - wants the CRD
    own_operator_options: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    with operator_on(own_server, tmp_path_factory.mktemp("operator"), **own_operator_options) as process:
        yield process


@pytest.fixture
def home(own_objects: Objects, own_operator: OperatorProcess) -> Iterator[World]:  # noqa: ARG001 - it must run
    """A namespace of the server for the test; its pods are deleted from the shared nodes afterwards."""
    with namespace_on(own_objects) as world:
        yield world
