"""`tfcluster port-forward`: kubectl forwards to the pod of a task, and to the one that replaces it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
from support.waiting import GUARD

from tfcluster.commands import port_forward

#: Notes its process and arguments, and continues until it is ended; with a file "fail" it fails.
KUBECTL = """#!{python}
import os, pathlib, signal, sys
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as calls:
    print(os.getpid(), *sys.argv[1:], file=calls)
if (folder / "fail").exists():
    sys.exit("error: unable to listen")
signal.pause()
"""


@pytest.fixture
def kubectl(tmp_path, monkeypatch) -> Path:
    """The folder of a program named kubectl, which is on the PATH."""
    (tmp_path / "calls").touch()
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(port_forward, "_LOOK", 0.02)
    return tmp_path


def calls(kubectl: Path) -> list[list[str]]:
    return [line.split() for line in (kubectl / "calls").read_text().splitlines()]


def test_kubectl_forwards_to_the_pod_and_to_the_one_that_replaces_it(client_world, kubectl):
    client_world.launch("mnist", worker=1)
    ended: list[object] = []
    arguments = ("port-forward", "mnist", "worker-0", "8000:80")
    thread = threading.Thread(target=lambda: ended.append(client_world.cli(*arguments)), daemon=True)
    thread.start()
    client_world.await_that(lambda: calls(kubectl))
    at = ["--kubeconfig", str(client_world.kubeconfig), "-n", "default", "port-forward"]
    assert calls(kubectl)[0][1:] == [*at, "pod/mnist-worker-0", "8000:80"]
    client_world.delete("pods", "mnist-worker-0")
    client_world.await_that(lambda: len(calls(kubectl)) == 2)
    client_world.delete("tfclusters", "mnist")
    thread.join(GUARD)
    (done,) = ended
    assert (done.exit_code, "TFCluster mnist was deleted" in done.stderr) == (1, True)
    for pid, *_ in calls(kubectl):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_what_kubectl_cannot_do_ends_it(client_world, kubectl):
    (kubectl / "fail").touch()
    client_world.launch("mnist", worker=1)
    done = client_world.cli("port-forward", "mnist", "worker-0", "80")
    assert (done.exit_code, "kubectl port-forward ended with status 1" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("task", "path", "words"),
    [("worker-1", None, "mnist has no task worker-1"), ("worker-0", "", "kubectl, which is not on the PATH")],
)
@pytest.mark.usefixtures("kubectl")
def test_what_is_missing_is_named(client_world, monkeypatch, task, path, words):
    if path is not None:
        monkeypatch.setenv("PATH", path)
    client_world.declare("mnist", worker=1)
    done = client_world.cli("port-forward", "mnist", task, "80")
    assert (done.exit_code, words in done.stderr) == (1, True)
