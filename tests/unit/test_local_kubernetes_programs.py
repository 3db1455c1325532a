"""The test cluster's programs: the cache that holds them, where they come from, their command lines and ports."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local_kubernetes import cache, ports
from local_kubernetes.progress import LocalKubernetesError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TFCLUSTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_thing(make) -> Path:
    return cache.cached("thing", "0123", make, usually="a moment", why="for this test")


def test_cache_makes_a_thing_once_for_callers_at_the_same_time(cache_folder):
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("content")

    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: make_thing(make), range(8)))
    assert len(made) == 1
    assert {place.joinpath("file").read_text() for place in places} == {"content"}
    assert [path.name for path in cache_folder.iterdir()] == ["thing-0123"]


def test_ports_are_free_and_different(monkeypatch):
    """A port that a program listens on is not chosen, and none is chosen twice, by this process or by another."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(taken, taken + 1))
        with pytest.raises(LocalKubernetesError, match="fewer than 1 free ports"):
            ports.free_ports(1)
    monkeypatch.undo()
    chosen = ports.free_ports(50)
    assert len(set(chosen)) == 50
    monkeypatch.setattr(ports, "PORTS", chosen[:5])
    with pytest.raises(LocalKubernetesError):
        ports.free_ports(1)
    program = f"from local_kubernetes import ports; ports.PORTS = {chosen[:5]}; ports.free_ports(1)"
    other = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "LocalKubernetesError" in other.stderr
