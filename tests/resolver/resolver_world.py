"""Helpers for the resolver's tests: a view, its pod, ports, and other Pythons."""

import copy
import itertools
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.waiting import GUARD

import tfcluster_resolver
from tfcluster_resolver import contract

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = Path(tfcluster_resolver.__file__).parent
GPU = "nvidia.com/gpu"
#: The first frame of a gRPC server in HTTP/2: empty settings.
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
#: The variables that name the task of a pod.
IDENTITY = (contract.ENV_JOB, contract.ENV_TASK_INDEX, contract.ENV_ADDRESS)
#: Every way to copy an object.
DUPLICATES = pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],  # noqa: S301 - our own bytes
    ids=["copy", "deep copy", "pickle"],
)


class Index:
    """An integer of another library, such as NumPy's."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def view_of(jobs: Mapping[str, Any] | None = None, **parts: Any) -> contract.View:
    """Build a view of the cluster n/c, by default at epoch 1."""
    named = {"name": "c", "namespace": "n", "uid": "u", "epoch": 1, "rpc_layer": "grpc"}
    return contract.View(**{**named, "jobs": jobs or {}, **parts})


class Seen:
    """A source whose view the test sets."""

    interval = None

    def __init__(self, workers: Sequence[str] = ("w0:1",), epoch: int = 1) -> None:
        self.show(workers, epoch)
        self.looks = 0
        self.on_look: Callable[[], object] = lambda: None

    def show(self, workers: Sequence[str], epoch: int) -> None:
        self._view = view_of({"worker": tuple(workers)}, epoch=epoch)

    def view(self) -> contract.View:
        self.looks += 1
        self.on_look()
        return self._view


def publish(folder: Path, view: contract.View | str) -> None:
    """Replace a view, or any text, atomically."""
    (folder / "new").write_text(view if isinstance(view, str) else contract.dump(view))
    (folder / "new").replace(folder / contract.VIEW_FILE)


class Kubelet:
    """Writes a ConfigMap volume by the steps of the kubelet's atomic writer (pkg/volume/util/atomic_writer.go)."""

    _stamps = itertools.count()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, view: contract.View) -> None:
        self.swap({contract.VIEW_FILE: contract.dump(view)})

    def swap(self, files: Mapping[str, str]) -> None:
        """Replace the files: a timestamped folder, the rename of ``..data``, the user's link; remove the old folder."""
        self.folder.mkdir(exist_ok=True)
        data = self.folder / "..data"
        before = data.readlink() if data.is_symlink() else None
        new = self.folder / f"..2026_11_21_09_00_00.{next(self._stamps):09d}"
        new.mkdir()
        new.chmod(0o755)
        for name, text in files.items():
            (new / name).write_text(text)
        (self.folder / "..data_tmp").symlink_to(new.name)
        (self.folder / "..data_tmp").rename(data)
        if not (self.folder / contract.VIEW_FILE).is_symlink():
            (self.folder / contract.VIEW_FILE).symlink_to(f"..data/{contract.VIEW_FILE}")
        if before is not None:
            shutil.rmtree(self.folder / before)


def be_task(monkeypatch: pytest.MonkeyPatch, job: str, index: int, address: str, folder: Path | None = None) -> None:
    """Make this process the pod of a task, with its view in a folder."""
    for name, value in zip(IDENTITY, (job, str(index), address), strict=True):
        monkeypatch.setenv(name, value)
    if folder is not None:
        monkeypatch.setenv(contract.ENV_DIRECTORY, str(folder))


def be_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in IDENTITY:
        monkeypatch.delenv(name, raising=False)


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def refusing_address() -> str:
    """Return an address without a listener: its port is bound until the process ends."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    address = address_of(held)
    held.detach()
    return address


@contextmanager
def speaker(words: bytes, *, closes: bool) -> Iterator[str]:
    """Serve some bytes, one by one, to each client that sends a greeting; return the address."""
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError):  # the client can have closed the connection
                one.recv(1024)
                for byte in words:
                    one.send(bytes([byte]))
            one.close() if closes else kept.append(one)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield address_of(listener)
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def python(
    *words: str, path: Sequence[Path] = (ROOT / "resolver",), environment: Mapping[str, str] = os.environ, **more: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env={**environment, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
        **{"timeout": GUARD, **more},
    )
