"""The cache of the test cluster's programs: made once, whole or not at all."""

from __future__ import annotations

import fcntl
import os
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


def test_cache_lock_is_held_by_one_at_a_time(tmp_path):
    """However often the file comes and goes, one holder is alone, and nobody trips over a file that has just gone."""
    inside = tmp_path / "inside"

    def hold(_: int) -> None:
        with cache.locked(tmp_path / "lock"):
            inside.touch(exist_ok=False)
            os.sched_yield()  # whoever is let in beside this one comes now
            inside.unlink()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(hold, range(2_000)))

    assert [path.name for path in tmp_path.iterdir()] == []


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


def test_cache_hash_keeps_parts_apart(tmp_path):
    """Moving a character from one part to the next makes another hash; a path counts by its content."""
    file = tmp_path / "file"
    file.write_text("ab")

    assert cache.content_hash("ab", "c") != cache.content_hash("a", "bc")
    assert cache.content_hash(file, "c") == cache.content_hash("ab", "c")
    assert cache.content_hash(file, "c") == cache.content_hash(b"ab", b"c")


def test_cache_root_follows_the_variable(monkeypatch):
    """TFCLUSTER_CACHE names the folder; without it the cache is under the home folder."""
    monkeypatch.setenv("TFCLUSTER_CACHE", "/some/where")
    assert cache.cache_root() == Path("/some/where")

    monkeypatch.delenv("TFCLUSTER_CACHE")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache.cache_root() == Path("/home/somebody/.cache/tfcluster")
