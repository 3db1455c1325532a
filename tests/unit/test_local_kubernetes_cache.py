"""The cache of the test cluster's programs: made once, whole or not at all."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import GUARD

from local_kubernetes import cache

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("TFCLUSTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_thing(make) -> Path:
    return cache.cached("thing", "0123", make, usually="a moment", why="for this test")


def test_cache_makes_a_thing_once_for_callers_at_the_same_time(root):
    """Eight callers at once make the thing a single time, and all get the whole of it."""
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("content")

    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: make_thing(make), range(8)))

    assert len(made) == 1
    assert {place.joinpath("file").read_text() for place in places} == {"content"}
    assert [path.name for path in root.iterdir()] == ["thing-0123"]


def test_cache_holds_nothing_of_a_failed_make(root):
    """A make that fails half way is not taken for a result, and the next one starts from an empty folder."""

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        make_thing(fail)

    assert not (root / "thing-0123").exists()

    place = make_thing(lambda folder: (folder / "whole").touch())

    assert [path.name for path in place.iterdir()] == ["whole"]


def test_cache_lock_keeps_another_process_out(tmp_path):
    """While the lock is held nobody else gets it, and the file that is locked is the one everybody would open."""
    lock = tmp_path / "lock"
    with cache.locked(lock), lock.open("rb") as another, pytest.raises(BlockingIOError):
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_cache_lock_ends_with_its_process(tmp_path):
    """A process that dies with the lock in its hands does not block the next one."""
    lock = tmp_path / "lock"
    program = (
        "import os, signal\nfrom pathlib import Path\nfrom local_kubernetes.cache import locked\n"
        f"with locked(Path({str(lock)!r})):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    died = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=GUARD)

    assert died.returncode == -9
    assert lock.exists()
    with cache.locked(lock):
        assert lock.exists()
    assert not lock.exists()
