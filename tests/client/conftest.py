"""A control plane for the client."""

from collections.abc import Iterator

import pytest
from client.client_world import ClientWorld


@pytest.fixture
def client_world(tmp_path) -> Iterator[ClientWorld]:
    """A control plane in memory behind HTTP, empty, for one test."""
    world = ClientWorld(tmp_path)
    world.start()
    yield world
    world.stop()
