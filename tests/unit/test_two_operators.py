"""Two processes of the operator and one Lease, with real signals; test_leadership.py has the rest in virtual time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from support import writing_operator
from support.small_server import SmallServer, in_a_thread, write_kubeconfig
from support.waiting import GUARD, eventually

_TESTS = Path(__file__).resolve().parents[1]
_PATHS = os.pathsep.join(str(path) for path in (_TESTS, _TESTS.parent / "operator", _TESTS.parent / "resolver"))
Process = subprocess.Popen[bytes]


@pytest.fixture
def server() -> Iterator[SmallServer]:
    """A small API server in a thread of its own."""
    with in_a_thread(SmallServer()) as found:
        yield found


@pytest.fixture
def start(server: SmallServer, tmp_path: Path) -> Iterator[Callable[[], Process]]:
    """Starts processes, whose output is in ``tmp_path``; all are killed in the end."""
    started: list[Process] = []
    environment = {**os.environ, "KUBECONFIG": str(write_kubeconfig(server, tmp_path)), "PYTHONPATH": _PATHS}

    def run() -> Process:
        arguments = ["--all-namespaces", "--leader-election", "--lease-namespace", "home"]
        with (tmp_path / f"{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "support.writing_operator", *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def writers(server: SmallServer) -> list[int]:
    """Return the processes that wrote, in order, each once for all it wrote in a row."""
    return [pid for pid, _ in groupby(write["of"] for write in list(server.written))]


def leads(server: SmallServer, process: Process) -> None:
    eventually(lambda: writers(server)[-1:] == [process.pid], what="it leads and writes")


@pytest.mark.exhaustive
def test_a_stopped_process_begins_no_write_when_it_wakes(server: SmallServer, start):
    """A standby follows a leader that is stopped; at SIGCONT the old one sends at most what it had begun, and ends."""
    server.lease = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    old = start()
    leads(server, old)
    looks = server.count("GET /apis/coordination")
    new = start()
    eventually(lambda: server.count("GET /apis/coordination") > looks, what="the standby looks at the lease")
    os.kill(old.pid, signal.SIGSTOP)
    leads(server, new)
    os.kill(old.pid, signal.SIGCONT)
    assert old.wait(GUARD) != 0
    count = len(server.written)
    eventually(lambda: len(server.written) > count + 50, what="the new one goes on")
    pids = [write["of"] for write in list(server.written)]
    assert pids[pids.index(new.pid) :].count(old.pid) <= writing_operator.WRITERS
    assert pids[-1] == new.pid
