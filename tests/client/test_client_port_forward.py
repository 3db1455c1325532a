"""`tfcluster port-forward`: kubectl forwards to the pods of tasks, which come and go."""

import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from client.client_world import ClientWorld
from support.manifests import pod_template
from support.waiting import GUARD

from tfcluster import forward
from tfcluster.errors import TFClusterError
from tfcluster.forward import forward_ports, plan_forwards, read_wish, with_port
from tfcluster.kube.api import KubernetesApi

BOARD = pod_template(ports=[{"name": "tensorboard", "containerPort": 6006}])
#: Notes its arguments and its process, and goes on until it is ended; with a file "fail" it fails.
KUBECTL = """#!{python}
import os, pathlib, signal, sys
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as calls:
    print(os.getpid(), *sys.argv[1:], file=calls)
if (folder / "fail").exists():
    sys.exit("error: pods is forbidden")
signal.pause()
"""


class Kubectl:
    """A program named kubectl on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "calls").touch()
        program = folder / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)

    def calls(self) -> list[list[str]]:
        return [line.split() for line in (self.folder / "calls").read_text().splitlines()]


class Forwarding:
    def __init__(self, world: ClientWorld, *wishes: str) -> None:
        self.told: list[str] = []
        self.error: Exception | None = None
        self._api = KubernetesApi.connect(kubeconfig=world.kubeconfig)
        self._wishes = [read_wish(wish) for wish in wishes]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            cluster = self._api.cluster("mnist")
            forwards = [with_port(one) for one in plan_forwards(cluster, self._wishes, None)]
            forward_ports(self._api, cluster, forwards, self.told.append)
        except TFClusterError as error:
            self.error = error

    def end(self) -> Exception | None:
        self._thread.join(GUARD)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def kubectl(tmp_path, monkeypatch) -> Kubectl:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(forward, "_LOOK", 0.02)
    return Kubectl(folder)


@pytest.fixture
def begin(client_world, kubectl) -> Iterator[Callable[..., Forwarding]]:
    """Forwards ports of the cluster `mnist`, which is deleted at the end."""
    del kubectl
    client_world.launch("mnist", chief={"template": BOARD})
    begun: list[Forwarding] = []

    def make(*wishes: str) -> Forwarding:
        begun.append(Forwarding(client_world, *wishes))
        return begun[-1]

    yield make
    if client_world.cluster("mnist"):
        client_world.delete("tfclusters", "mnist")
    for one in begun:
        one.end()


def test_kubectl_forwards_to_the_pod_and_to_the_one_that_replaces_it(client_world, kubectl, begin):
    forwarding = begin("0:6006")
    client_world.await_that(kubectl.calls)
    first, *words = kubectl.calls()[0]
    ports = words[-1]
    at = ["--kubeconfig", str(client_world.kubeconfig), "-n", "default", "port-forward", "--address", "127.0.0.1"]
    assert words == [*at, "pod/mnist-chief-0", ports]
    client_world.delete("pods", "mnist-chief-0")
    client_world.await_that(lambda: len(kubectl.calls()) == 2)
    assert kubectl.calls()[1][-1] == ports
    assert forwarding.told[-1] == "chief-0: connections go to pod mnist-chief-0"
    client_world.delete("tfclusters", "mnist")
    assert str(forwarding.end()) == "TFCluster mnist was deleted"
    for pid in (first, kubectl.calls()[1][0]):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_kubectl_error_is_reported_once_and_retried(client_world, kubectl, begin):
    (kubectl.folder / "fail").touch()
    forwarding = begin()
    client_world.await_that(lambda: len(kubectl.calls()) >= 3)
    failed = "chief-0: error: pods is forbidden; trying again"
    assert forwarding.told == ["chief-0: connections go to pod mnist-chief-0", failed]


def test_without_kubectl_it_says_what_to_install(client_world, monkeypatch):
    monkeypatch.setenv("PATH", "")
    shown = client_world.cli("port-forward", "mnist")
    assert (shown.exit_code, "kubectl, which is not on the PATH" in shown.stderr) == (1, True)


def test_port_in_use_is_reported_and_a_discovered_one_changes(begin):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = begin(f"{port}:6006").end()
        assert str(error) == f"port {port} of this machine is in use"
        assert "--port 0:6006 takes a free one" in error.hint
        found = forward.Forward(forward.TaskName("chief", 0), 6006, port, optional=True)
        assert with_port(found).local not in (0, port)


def cluster(**jobs) -> dict:
    return {"metadata": {"name": "mnist"}, "spec": {"jobs": jobs}}


def job(*ports: tuple[str, int], replicas: int = 1) -> dict:
    declared = [{"containerPort": number, **({"name": name} if name else {})} for name, number in ports]
    return {"replicas": replicas, "template": {"spec": {"containers": [{"name": "tensorflow", "ports": declared}]}}}


BOARD_AND_JUPYTER = {"chief": job(("", 6006)), "worker": job(("", 8888))}


@pytest.mark.parametrize(
    ("jobs", "wishes", "found"),
    [
        ({"chief": job(("tensorboard", 7007))}, [], ["chief-0 7007:7007 TensorBoard"]),
        (BOARD_AND_JUPYTER, [], ["chief-0 6006:6006 TensorBoard", "worker-0 8888:8888 Jupyter"]),
        ({"chief": job(), "worker": job(("metrics", 9000))}, ["0:9000"], ["worker-0 0:9000"]),
        ({"ps": job(), "worker": job()}, ["80", ":81"], ["worker-0 80:80", "worker-0 0:81"]),
        ({"chief": job(replicas=0), "worker": job()}, ["6006"], ["worker-0 6006:6006 TensorBoard"]),
        ({"a": job(("", 2222)), "b": job(("http", 80))}, [], ["b-0 80:80 HTTP"]),
    ],
)
def test_ports_are_found_in_the_templates(jobs, wishes, found):
    forwards = plan_forwards(cluster(**jobs), [read_wish(wish) for wish in wishes], None)
    assert [f"{one.task} {one.local}:{one.remote} {one.title}".strip() for one in forwards] == found


def test_unknown_ports_are_reported_with_the_existing_ones():
    words = r"a container port for TensorBoard, .*; the templates name worker 9000 \(m\)"
    with pytest.raises(TFClusterError, match=words) as raised:
        plan_forwards(cluster(worker=job(("m", 9000), replicas=2)), [], None)
    assert "--task JOB-INDEX --port 6006" in raised.value.hint


@pytest.mark.parametrize("text", ["", "x", "1:2:3", "0", "70000", "5:0", "-1", "8080:", "٣"])
def test_invalid_port_is_rejected(text):
    with pytest.raises(ValueError, match="write"):
        read_wish(text)


def test_command_prints_where_each_port_is(client_world, kubectl):
    client_world.launch("digits", chief={"template": BOARD}, worker=2)
    with ThreadPoolExecutor() as pool:
        shown = pool.submit(client_world.cli, "port-forward", "digits")
        client_world.await_that(kubectl.calls)
        client_world.delete("tfclusters", "digits")
        done = shown.result(GUARD)
    assert re.match(r"http://127\.0\.0\.1:\d+ +TensorBoard of chief-0", done.stdout)
    assert (done.exit_code, "TFCluster digits was deleted" in done.stderr) == (1, True)
