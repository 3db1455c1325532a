"""The streams of the client on a real node: logs and connections, while pods are replaced."""

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_world import LiveWorld
from support.objects import PODS
from support.waiting import eventually
from task_programs import pod_template

pytestmark = pytest.mark.exhaustive

#: `tfcluster port-forward` runs kubectl; `make cluster` puts one here.
PATH = os.pathsep.join([str(Path(__file__).resolve().parents[2] / ".local" / "bin"), os.environ["PATH"]])

#: Counts on stdout, serves its own name by HTTP, logs its termination, and ends with the code in /tmp/end.
COUNT = """
import http.server, os, pathlib, signal, socket, threading, time
me = f"{socket.gethostname()}.{os.urandom(4).hex()}"
def say(text):
    os.write(1, f"{me} {text}\\n".encode())  # at once: a signal may come within print()
def stop(*_):
    say("stops")
    os._exit(143)
signal.signal(signal.SIGTERM, stop)
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = me.encode() if self.path == "/" else bytes(int(self.path[1:]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
for port in (2222, 8000):
    server = http.server.ThreadingHTTPServer(("", port), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
order, number = pathlib.Path("/tmp/end"), 0
while True:
    say(number)
    number += 1
    time.sleep(0.02)
    if order.exists() and (code := order.read_text().strip()):
        say(f"ends with {code}")
        os._exit(int(code))
"""


class Command:
    """`tfcluster` in a separate process, and its output."""

    def __init__(self, kubeconfig: Path, namespace: str, *arguments: str) -> None:
        self.out: list[str] = []
        self.err: list[str] = []
        words = [sys.executable, "-m", "tfcluster", arguments[0], "--kubeconfig", str(kubeconfig), "-n", namespace]
        self.process = subprocess.Popen(
            [*words, *arguments[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": PATH},
        )
        self._threads = [
            threading.Thread(target=kept.extend, args=(stream,), daemon=True)
            for stream, kept in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> int:
        code = self.process.wait(60)
        for thread in self._threads:
            thread.join(30)
        return code


@pytest.fixture
def tfcluster(kubeconfig: Path, namespace: str) -> Iterator:
    """Runs `tfcluster` in the test's namespace until the end of the test."""
    begun: list[Command] = []

    def begin(*arguments: str) -> Command:
        begun.append(Command(kubeconfig, namespace, *arguments))
        return begun[-1]

    yield begin
    for one in begun:
        with contextlib.suppress(ProcessLookupError):
            one.process.kill()


def ask(session: Command, path: str = "/") -> bytes:
    url = eventually(lambda: session.out[:1], what="the session says where it listens")[0].split()[0]
    with urllib.request.urlopen(f"{url}{path}", timeout=60) as answer:  # noqa: S310 - http alone
        return answer.read()


def answer_of(session: Command) -> str:
    """As ``ask``, but return nothing if its pod ends in the meantime."""
    try:
        return ask(session).decode()
    except (OSError, http.client.HTTPException):
        return ""


def counts(lines: list[str], task: str) -> dict[str, list[str]]:
    """Return the output of each program of a task, in order."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if match := re.fullmatch(rf"{task} \| (\S+) (.*)\n", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def await_line(command: Command, task: str, pattern: str, *, number: int = 0) -> None:
    eventually(
        lambda: sum(bool(re.fullmatch(rf"{task} \| {pattern}\n", line)) for line in list(command.out)),
        lambda count: count > number,
        what=f"{task} says {pattern}",
    )


def test_logs_and_port_forward_continue_across_pod_replacement(world: LiveWorld, tfcluster):
    template = pod_template(world.image, COUNT, ports=[{"name": "http", "containerPort": 8000}])
    world.launch("c", {"worker": {"template": template}}, failedPodsHistoryLimit=1)
    logs = tfcluster("logs", "c", "-f")
    session = tfcluster("port-forward", "c", "--port", "0:8000")
    world.await_ready("c")
    first = eventually(lambda: answer_of(session), what="its program answers")
    await_line(logs, "worker-0", f"{first} 3")

    # A pod is deleted: both continue in the next.
    uid = world.uids()["c-worker-0"]
    world.delete(PODS, "c-worker-0")
    second = eventually(lambda: answer_of(session), lambda name: name not in {"", first}, what="the next pod answers")
    world.await_replaced("c-worker-0", uid)
    await_line(logs, "worker-0", f"{second} 3")
    assert first != second

    # A task is added.
    world.scale("c", replicas=2)
    await_line(logs, "worker-1", r"\S+ 3")

    # A task fails: its pod is kept, and the next has another name.
    world.end("c-worker-0", 1)
    eventually(lambda: world.get(PODS, "c-worker-0-r1"), what="the failed pod has a successor")
    third = eventually(
        lambda: answer_of(session), lambda name: name not in {"", second}, what="the session leads to it"
    )
    await_line(logs, "worker-0", f"{third} 3")
    previous = tfcluster("logs", "c", "worker-0", "--previous")
    assert previous.end() == 0
    assert previous.out[-1] == f"{second} ends with 1\n"
    assert len(ask(session, "/3000000")) == 3000000

    # The end.
    for pod in ("c-worker-0-r1", "c-worker-1"):
        world.end(pod, 0)
    assert logs.end() == 0, logs.err
    assert session.end() == 1, "none of the pods that it leads to runs any more"
    assert "TFCluster c has succeeded" in session.err[-2]

    found = counts(logs.out, "worker-0")
    assert list(found) == [first, second, third], "a pod's lines came before the end of the one before it"
    lasts = {first: "stops", second: "ends with 1", third: "ends with 0"}
    for name, said in found.items():
        *numbers, last = said
        assert last == lasts[name]
        assert numbers == [str(number) for number in range(len(numbers))], f"lines of {name} are lost or doubled"
    assert any("c-worker-0 was deleted; the task continues in a new pod of that name" in line for line in logs.err)
    assert any("failed with exit code 1; the task continues in c-worker-0-r1" in line for line in logs.err)
    assert any("worker-1 joins" in line for line in logs.err)
    assert logs.err[-1].startswith("TFCluster c has succeeded")
