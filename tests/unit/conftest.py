"""Shared fixtures of the unit tests."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from unit.client_world import ClientWorld


@pytest.fixture(autouse=True)
def _same_chance_in_every_run() -> None:
    """The operator draws its jitter from ``random``."""
    random.seed(7)


@pytest.fixture
def client_world(tmp_path) -> Iterator[ClientWorld]:
    """A control plane in memory behind HTTP, empty, for one test."""
    world = ClientWorld(tmp_path)
    world.start()
    yield world
    world.stop()


@pytest.fixture
def listen() -> Iterator[Callable[[], str]]:
    """Opens ports that accept connections, and returns their addresses."""
    with ExitStack() as opened:
        yield lambda: "{}:{}".format(*opened.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname())
