"""The task server: how it starts, ends and fails."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest
from loopback_cluster import DEADLINE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server(make_cluster, number):
    """A server that is told to end does, with 128 plus the signal's number."""
    cluster = make_cluster(jobs={"worker": 1})
    server = cluster.serve("worker", 0)
    cluster.await_line(server, "serving /job:worker/task:0 of tests/loopback")

    server.send_signal(number)

    assert server.wait(DEADLINE) == 128 + number


def test_signal_ends_the_server_as_process_one(make_cluster):
    """SIGTERM ends the server where it is process 1 of its own process namespace, as in a container."""
    unshare = ["unshare", "--fork", "--pid", "--kill-child"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("making a process namespace needs root")
    cluster = make_cluster(jobs={"worker": 1})
    server = subprocess.Popen(
        [*unshare, sys.executable, "-c", SIGNALLED_BY_A_CHILD],
        env=cluster.environment("worker", 0),
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = server.communicate(timeout=DEADLINE)

    assert "process 1 serves" in output
    assert server.returncode == 143


#: Process 1 of a namespace is killed by no signal from inside that it has no handler for: just what a kubelet meets.
SIGNALLED_BY_A_CHILD = """
import os, socket, subprocess, sys
assert os.getpid() == 1
host, _, port = os.environ["TFCLUSTER_ADDRESS"].rpartition(":")
waiting = f'''
import os, signal, socket
while True:
    try:
        socket.create_connection(("{host}", {port})).close()
        break
    except OSError:
        pass
print("process 1 serves", flush=True)
os.kill(1, signal.SIGTERM)
'''
subprocess.Popen([sys.executable, "-c", waiting])
os.execv(sys.executable, [sys.executable, "-m", "tfcluster_resolver", "serve"])
"""


def test_server_listens_on_its_own_port(make_cluster):
    """Once a server says that it serves, its address accepts connections."""
    cluster = make_cluster(jobs={"worker": 2, "ps": 1})
    cluster.await_line(cluster.serve("worker", 1), "serving")
    host, _, port = cluster.addresses["worker"][1].rpartition(":")

    with socket.create_connection((host, int(port))) as connection:
        assert connection.getpeername() == (host, int(port))


def test_taken_port_is_said(make_cluster):
    """A server whose port is taken ends with exit code 71 and names the port."""
    cluster = make_cluster(jobs={"worker": 1})
    port = int(cluster.addresses["worker"][0].rpartition(":")[2])

    with socket.socket() as other:
        other.bind(("", port))
        other.listen()
        done = cluster.run("worker", 0, "-m", "tfcluster_resolver", "serve")

    assert done.returncode == 71
    assert f"port {port} is taken" in done.stderr


def test_rpc_layer_that_tensorflow_lacks_is_said(make_cluster):
    """A server whose rpc layer TensorFlow does not have ends with exit code 71 and says what TensorFlow said."""
    cluster = make_cluster(jobs={"worker": 1})
    view = (cluster.folder / "..data" / "cluster.json").resolve()
    view.write_text(view.read_text().replace('"rpcLayer":"grpc"', '"rpcLayer":"pigeon"'))

    done = cluster.run("worker", 0, "-m", "tfcluster_resolver", "serve")

    assert done.returncode == 71
    assert "TensorFlow cannot serve /job:worker/task:0" in done.stderr
