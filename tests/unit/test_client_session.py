"""`tfcluster session`: connections into pods that come and go, over websockets that break."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
from support.manifests import pod_template
from support.waiting import GUARD
from unit.client_world import ClientWorld
from unit.played_kubelet import PlayedKubelet

from tfcluster import forward
from tfcluster.commands import session as session_command
from tfcluster.errors import TFClusterError
from tfcluster.forward import Forward, LocalEnd, PortForwards, plan_forwards, read_wish
from tfcluster.kube.api import KubernetesApi

BOARD = pod_template(ports=[{"name": "tensorboard", "containerPort": 6006}])


class Program(socketserver.ThreadingTCPServer):
    """A program that answers each line with its name and the line; ``echo N`` is followed by N bytes both ways."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(("127.0.0.1", 0), _Answer)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self) -> int:
        return self.server_address[1]

    def server_close(self) -> None:
        # NB: else its thread goes on polling a closed socket's number, which is soon another's, for as long as pytest.
        self.shutdown()
        super().server_close()


class _Answer(socketserver.StreamRequestHandler):
    server: Program

    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(f"{self.server.name}: ".encode() + line)
            if line.startswith(b"bye"):
                return
            if line.startswith(b"echo"):
                left = int(line.split()[1])
                while left:
                    chunk = self.rfile.read1(min(left, 65536))
                    left -= len(chunk)
                    self.wfile.write(chunk)


class Session:
    """PortForwards in a thread."""

    def __init__(self, world: ClientWorld, kubelet: PlayedKubelet, *wishes: str) -> None:
        self.told: list[str] = []
        self.bound: list[tuple[Forward, int]] = []
        self.error: Exception | None = None
        self._began, self.over = threading.Event(), threading.Event()
        self._api = KubernetesApi.connect(kubeconfig=world.kubeconfig)
        self._api.portforward = lambda pod, _, port: (f"{kubelet.url}/{pod}?ports={port}", {})
        read = [read_wish(wish) for wish in wishes]
        self._forwards = PortForwards(
            self._api,
            "mnist",
            choose=lambda cluster: plan_forwards(cluster, read, None),
            began=self._begin,
            tell=self.told.append,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _begin(self, bound: list[tuple[Forward, int]]) -> None:
        self.bound = bound
        self._began.set()

    def _run(self) -> None:
        try:
            self._task = self._loop.create_task(self._forwards.run())
            self._loop.run_until_complete(self._task)
        except TFClusterError as error:
            self.error = error
        except asyncio.CancelledError:
            pass
        finally:
            self._began.set()
            self.over.set()

    def stop(self) -> None:
        if not self.over.is_set():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(GUARD)
        assert not self._thread.is_alive()
        self._loop.close()
        self._api.close()

    def complaints_to(self, found: list[object]) -> None:
        """Collect what asyncio would print."""
        self._loop.set_exception_handler(lambda _, context: found.append(context))

    def serve_late(self) -> None:
        """Serve a connection that was accepted before the end, and that was not looked at until now."""

        async def serve() -> None:
            local = LocalEnd(asyncio.StreamReader(), Mock(asyncio.StreamWriter))
            await asyncio.wait_for(self._forwards._serve(self.bound[0][0], local), GUARD)

        asyncio.run(serve())

    def connect(self, line: str = "") -> socket.socket:
        """Connect, and send a line."""
        assert self._began.wait(GUARD)
        assert self.error is None, self.error
        connection = socket.create_connection(("127.0.0.1", self.bound[0][1]), timeout=GUARD)
        connection.sendall(f"{line}\n".encode() if line else b"")
        return connection

    def ask(self) -> str:
        """Send the last line, and read the answer."""
        with self.connect("bye") as connection:
            return connection.makefile().readline().strip()


@pytest.fixture
def kubelet() -> Iterator[PlayedKubelet]:
    played = PlayedKubelet()
    yield played
    played.stop()


@pytest.fixture
def program(kubelet) -> Iterator[Callable[[str], None]]:
    """Let a program of this name serve the port of the cluster's only pod."""
    with contextlib.ExitStack() as stack:

        def serve(name: str) -> None:
            kubelet.leads_to["mnist-chief-0"] = stack.enter_context(Program(name)).port

        yield serve


@pytest.fixture
def session(client_world, kubelet) -> Iterator[Callable[..., Session]]:
    """Forwards the ports of the cluster `mnist`, until the test is over."""
    client_world.launch("mnist", chief={"template": BOARD})
    begun: list[Session] = []

    def begin(*wishes: str) -> Session:
        begun.append(Session(client_world, kubelet, *wishes))
        return begun[-1]

    yield begin
    for one in begun:
        one.stop()


def test_connections_lead_to_the_pod_and_after_it_is_replaced_to_the_next(client_world, kubelet, program, session):
    program("first")
    forwarding = session()
    assert forwarding.ask() == "first: bye"
    before = client_world.uids()
    client_world.delete("pods", "mnist-chief-0")
    client_world.await_that(lambda: any("was deleted; connections wait" in words for words in forwarding.told))
    program("second")
    assert forwarding.ask() == "second: bye"
    after = client_world.uids()
    assert (after.keys(), after == before) == (before.keys(), False)
    assert forwarding.told[-1] == "chief-0: connections go to pod mnist-chief-0"
    assert set(kubelet.asked) == {"6006"}


def test_a_program_hears_and_answers_all(client_world, kubelet, program, session):
    """A side that waits until it has sent all before it reads would stand still for ever."""
    forwarding = session()
    with forwarding.connect("hello") as connection:
        client_world.await_that(lambda: kubelet.refused >= 2)
        program("late")
        assert connection.makefile().readline() == "late: hello\n"
    with forwarding.connect("bye") as connection:
        connection.shutdown(socket.SHUT_WR)
        assert connection.makefile().read() == "late: bye\n"
    pattern = bytes(range(256)) * (12 * 2**12)
    with forwarding.connect(f"echo {len(pattern)}") as connection:
        sending = threading.Thread(target=connection.sendall, args=(pattern,), daemon=True)
        sending.start()
        file = connection.makefile("rb")
        assert file.readline() == f"late: echo {len(pattern)}\n".encode()
        assert file.read(len(pattern)) == pattern
        sending.join(GUARD)


def test_connections_that_break_or_end_leave_nothing_open(client_world, kubelet, program, session):
    program("program")
    forwarding = session()
    with forwarding.connect("hello") as connection:
        file = connection.makefile()
        assert file.readline() == "program: hello\n"
        kubelet.cut()
        assert file.read() == ""
    for _ in range(20):
        assert forwarding.ask() == "program: bye"
    with forwarding.connect("hello") as connection:
        connection.recv(100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client_world.await_that(lambda: kubelet.open == 0)


def test_without_the_right_to_forward_it_ends_with_what_to_do(kubelet, session):
    kubelet.status = 403
    forwarding = session()
    with forwarding.connect() as connection:
        assert connection.recv(1) == b""
    assert forwarding.over.wait(GUARD)
    assert "you may not forward ports" in str(forwarding.error)
    assert "pods/portforward" in forwarding.error.hint


def test_it_ends_when_the_cluster_is_deleted_without_a_complaint(client_world, kubelet, session, monkeypatch):
    """A connection whose pod refuses is tried again and again: never on what is closed already."""
    monkeypatch.setattr(forward, "_PAUSE", 0)
    forwarding = session()
    complaints: list[object] = []
    forwarding.complaints_to(complaints)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(forwarding.connect("hello"))
        client_world.await_that(lambda: kubelet.refused >= 16)
        client_world.delete("tfclusters", "mnist")
        assert forwarding.over.wait(GUARD)
    assert str(forwarding.error) == "TFCluster mnist was deleted"
    forwarding.stop()
    gc.collect()  # then asyncio tells of errors that were never retrieved
    assert complaints == []


def test_a_connection_that_is_looked_at_after_the_end_is_let_go(client_world, kubelet, session):
    forwarding = session()
    with forwarding.connect("hello"):
        client_world.await_that(lambda: kubelet.refused >= 1)
    forwarding.stop()
    told, asked = list(forwarding.told), kubelet.refused
    forwarding.serve_late()
    assert (forwarding.told, kubelet.refused) == (told, asked)


def test_a_port_in_use_is_told_with_the_option_and_a_discovered_one_moves(session):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        named = session(f"{port}:6006")
        assert named.over.wait(GUARD)
        assert str(named.error) == f"port {port} of this machine is in use"
        assert "--port 0:6006 takes a free one" in named.error.hint
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 6006)):
            discovered = session()
            discovered.connect().close()
            assert discovered.bound[0][1] != 6006


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


@pytest.mark.parametrize(
    ("names", "words", "hint"),
    [
        (
            [],
            r"a container port for TensorBoard, .*; the templates name worker 9000 \(m\)",
            "--task JOB-INDEX --port 6006",
        ),
        (["Jupyter"], "named jupyter, or 8888", "--port 8888"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(names, words, hint):
    with pytest.raises(TFClusterError, match=words) as raised:
        plan_forwards(cluster(worker=job(("m", 9000), replicas=2)), [], None, *([names] if names else []))
    assert hint in raised.value.hint


@pytest.mark.parametrize("text", ["", "x", "1:2:3", "0", "70000", "5:0", "-1", "8080:", "٣"])
def test_what_is_no_port_is_refused(text):
    with pytest.raises(ValueError, match="write"):
        read_wish(text)


def test_the_examples_of_its_help_work(client_world, monkeypatch):
    shown = client_world.cli("session", "--help").output.splitlines()
    lines = [line.partition("#")[0].split()[2:] for line in shown if line.strip().startswith("$ tfcluster")]
    assert len(lines) == 3
    opened: list[str] = []
    monkeypatch.setattr(session_command.webbrowser, "open", opened.append)
    began = session_command._began

    def began_and_deleted(*arguments, **options) -> None:
        began(*arguments, **options)
        client_world.delete("tfclusters", "digits")

    monkeypatch.setattr(session_command, "_began", began_and_deleted)
    for line in lines:
        client_world.declare("digits", chief={"template": BOARD}, worker=2)
        done = client_world.cli(*line)
        assert "127.0.0.1:" in done.stdout
        assert (done.exit_code, "TFCluster digits was deleted" in done.stderr) == (1, True)
        client_world.await_that(lambda: not client_world.uids())
    assert [url.rpartition(":")[0] for url in opened] == ["http://127.0.0.1"]
