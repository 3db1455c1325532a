"""The task server: how it starts, ends and fails; and what the other commands pass to TensorFlow."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import run
from loopback_cluster import DEADLINE, released


def change_view(cluster, change):
    path = (cluster.folder / "..data" / "cluster.json").resolve()
    view = json.loads(path.read_text())
    change(view)
    path.write_text(json.dumps(view))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server(make_cluster, number):
    """Until then its port accepts connections."""
    cluster = make_cluster(jobs={"worker": 2, "ps": 1})
    (server,) = cluster.serve(("worker", 1))
    host, _, port = cluster.addresses["worker"][1].rpartition(":")
    socket.create_connection((host, int(port))).close()

    server.send_signal(number)

    assert server.wait(DEADLINE) == 128 + number


def test_signal_ends_the_server_as_process_one(make_cluster):
    unshare = ["unshare", "--fork", "--pid", "--kill-child"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("making a process namespace needs root")
    cluster = make_cluster(jobs={"worker": 1})
    words = [*unshare, sys.executable, "-m", "tfcluster_resolver", "serve"]
    with subprocess.Popen(words, env=cluster.environment("worker", 0), stdout=subprocess.PIPE, text=True) as server:
        cluster.await_line(server, "serving /job:worker/task:0")
        child = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text())

        os.kill(child, signal.SIGTERM)

        assert server.wait(DEADLINE) == 143


def test_leaving_server_exits_when_the_coordinator_releases_it(make_cluster):
    """It exits with 0, but not for a message to an earlier server."""
    cluster = make_cluster(jobs={"worker": 2})
    word = released(cluster.addresses["worker"][1])
    word.write_text("")
    (server,) = cluster.serve(("worker", 1))
    assert not word.exists()
    cluster.leaving = {"worker": ((1, 2),)}
    cluster.publish(epoch=2)
    assert server.poll() is None

    word.write_text("")

    assert cluster.await_line(server, "has released it")
    assert server.wait(DEADLINE) == 0


#: Serves with the Python function, in a thread of a program with other work.
SERVE_IN_A_THREAD = """
import signal, sys, threading
from tfcluster_resolver import TFClusterResolver, serve

# Else a signal before sigwait() would end the program, in whichever thread.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
address = sys.argv[1]
resolver = TFClusterResolver.from_spec({"worker": ["nowhere.invalid:1", address]}, "worker", 1)
threading.Thread(target=serve, args=(resolver,), daemon=True).start()
signal.sigwait({signal.SIGTERM})
print("the program ends by itself")
"""


def test_server_of_a_written_cluster_runs_in_a_thread(make_cluster):
    """``serve(resolver)`` serves the resolver's task; in a thread it leaves the signals to the program."""
    cluster = make_cluster(jobs={"worker": 1})
    address = cluster.addresses["worker"][0]
    server = cluster.start("worker", 0, "-c", SERVE_IN_A_THREAD, address)
    said = cluster.await_line(server, "serving /job:worker/task:1 of")

    server.send_signal(signal.SIGTERM)

    assert said.endswith(f"port {address.rpartition(':')[2]}\n")
    assert server.communicate(timeout=DEADLINE)[0] == "the program ends by itself\n"
    assert server.returncode == 0


def test_unsupported_rpc_layer_is_rejected(make_cluster):
    cluster = make_cluster(jobs={"worker": 1})
    change_view(cluster, lambda view: view.update(rpcLayer="pigeon"))
    done = cluster.run("worker", 0, "-m", "tfcluster_resolver", "serve")
    assert done.returncode == 71
    assert "TensorFlow cannot serve /job:worker/task:0" in done.stderr


#: TensorFlow's own resolver reads this from TF_CONFIG.
READ_TF_CONFIG = """
import json
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
task = resolver.task_type, resolver.task_id
print(json.dumps([resolver.cluster_spec().as_dict(), *task, resolver.rpc_layer, resolver.master(*task)]))
"""
#: Its strategies check this; they do not accept a sparse cluster.
ACCEPT_TF_CONFIG = """
from tensorflow.python.distribute import multi_worker_util
multi_worker_util._validate_cluster_spec(resolver.cluster_spec(), *task)
# NB: MultiWorkerMirroredStrategy counts an evaluator among its own kind.
assert multi_worker_util.worker_count(resolver.cluster_spec(), task[0]) == {"worker": 5, "evaluator": 1}[task[0]]
"""


@pytest.mark.parametrize(
    ("job", "index", "seen"),
    [("worker", 1, None), ("evaluator", 0, None), ("worker", 3, [1, 3])],
    ids=["worker", "evaluator", "sparse"],
)
def test_tensorflow_reads_what_exec_writes(make_cluster, job, index, seen):
    cluster = make_cluster(jobs={"chief": 1, "worker": 4, "evaluator": 1})
    change_view(cluster, lambda view: view["jobs"].pop("evaluator"))
    tasks = {one: cluster.addresses[one] for one in {"chief", "worker", job}}
    if seen is not None:
        workers = {str(one): cluster.addresses["worker"][one] for one in seen}
        change_view(cluster, lambda view: view["jobs"].update(worker={"1": workers["1"]}))
        tasks["worker"] = workers
    show = [sys.executable, "-c", "import os; print(os.environ['TF_CONFIG'])"]
    shown = cluster.run(job, index, "-m", "tfcluster_resolver", "exec", "--", *show)
    assert shown.returncode == 0, shown.stderr

    environment = cluster.environment(job, index) | {"TF_CONFIG": shown.stdout.strip()}
    program = READ_TF_CONFIG + (ACCEPT_TF_CONFIG if seen is None else "")
    done = run(["-c", program], env=environment, timeout=DEADLINE)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [tasks, job, index, "grpc", f"grpc://{cluster.addresses[job][index]}"]
