"""Two processes of the operator and one Lease: what SIGTERM, SIGKILL and SIGSTOP do to who writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from support.small_server import SmallServer, in_a_thread, write_kubeconfig
from support.waiting import eventually
from support.writing_operator import TIMING

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
    """Give the processes that wrote, in order, each once for all it wrote in a row."""
    return [pid for pid, _ in groupby(write["of"] for write in list(server.written))]


def leads(server: SmallServer, process: Process) -> None:
    eventually(lambda: writers(server)[-1:] == [process.pid], what="it leads and writes")


def free_lease() -> dict[str, object]:
    return {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}


def test_a_stopped_process_writes_nothing_when_it_wakes(server: SmallServer, start):
    """A leader that stood still until its lease ended sends nothing after SIGCONT: the kernel ends it first."""
    for _ in range(3):
        server.lease = free_lease()
        process = start()
        leads(server, process)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(TIMING.duration + 0.2)  # the process must stand still for so long
        written = len(server.written)
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(10) == signal.SIGALRM
        assert len(server.written) == written


def test_a_leader_that_cannot_renew_ends_by_name(server: SmallServer, start, tmp_path: Path):
    """A leader whose renewals are refused writes on until its deadline, then ends with 1 and says why."""
    server.lease = free_lease()
    process = start()
    leads(server, process)
    refused = time.monotonic()
    server.lease_refused = True
    assert process.wait(10) == 1
    assert TIMING.deadline - TIMING.renew - 0.2 < time.monotonic() - refused < TIMING.duration
    log = (tmp_path / "0.log").read_text(encoding="utf-8")
    assert "the operator ends: the lease was lost: no renewal within 2 s: 403 Forbidden: not for you" in log
    assert "Traceback" not in log


def test_a_stopped_leader_is_never_heard_of_again(server: SmallServer, start):
    """While a leader is stopped a standby follows; woken up, the old one writes nothing among the new one's writes."""
    server.lease = free_lease()
    old = start()
    leads(server, old)
    new = start()
    eventually(lambda: server.count("GET /apis/coordination") > 4, what="the standby looks at the lease")
    os.kill(old.pid, signal.SIGSTOP)
    leads(server, new)
    os.kill(old.pid, signal.SIGCONT)
    assert old.wait(10) == signal.SIGALRM
    count = len(server.written)
    eventually(lambda: len(server.written) > count + 50, what="the new one goes on")
    assert writers(server) == [old.pid, new.pid]


def test_a_release_hands_over_at_once(server: SmallServer, start):
    """SIGTERM ends the leader with 0; the standby writes within a second, and not a write of theirs overlaps."""
    server.lease = free_lease()
    old = start()
    leads(server, old)
    new = start()
    eventually(lambda: server.count("GET /apis/coordination") > 4, what="the standby looks at the lease")
    stopped = time.monotonic()
    os.kill(old.pid, signal.SIGTERM)
    leads(server, new)
    assert time.monotonic() - stopped < TIMING.poll + 1
    assert old.wait(10) == 0
    assert writers(server) == [old.pid, new.pid]


def test_a_killed_leader_is_followed_when_its_lease_ends(server: SmallServer, start):
    """SIGKILL leaves the lease to run out: the standby writes within its duration and 2 s, and not before."""
    server.lease = free_lease()
    old = start()
    leads(server, old)
    new = start()
    eventually(lambda: server.count("GET /apis/coordination") > 4, what="the standby looks at the lease")
    killed = time.monotonic()
    old.kill()
    leads(server, new)
    waited = time.monotonic() - killed
    assert TIMING.duration - TIMING.renew - 0.1 < waited < TIMING.duration + 2
    assert writers(server) == [old.pid, new.pid]
