"""The task server: how it starts, ends and fails; and what the other commands tell TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fork_server import Forked, run
from loopback_cluster import DEADLINE, ROOT

from tfcluster_resolver import contract


def change_view(cluster, change):
    """Have the published view hold something else."""
    path = (cluster.folder / "..data" / "cluster.json").resolve()
    view = json.loads(path.read_text())
    change(view)
    path.write_text(json.dumps(view))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server(make_cluster, number):
    """Until then its port accepts connections."""
    cluster = make_cluster(jobs={"worker": 2, "ps": 1})
    server = cluster.serve("worker", 1)
    cluster.await_line(server, "serving /job:worker/task:1 of tests/loopback")
    host, _, port = cluster.addresses["worker"][1].rpartition(":")
    socket.create_connection((host, int(port))).close()

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


def released(cluster, job, index):
    """Give the file by which a coordinator lets go of a task."""
    return Path(contract.released_file(int(cluster.addresses[job][index].rpartition(":")[2])))


def test_server_that_leaves_ends_when_the_coordinator_has_let_go_of_it(make_cluster):
    """Not by leaving alone, and not by a word that is for the server before it: by both, and with 0."""
    cluster = make_cluster(jobs={"worker": 2})
    word = released(cluster, "worker", 1)
    word.write_text("")
    server = cluster.serve("worker", 1)
    cluster.await_line(server, "serving /job:worker/task:1")
    assert not word.exists()
    cluster.leaving = {"worker": ((1, 2),)}
    cluster.publish(epoch=2)
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(2)

    word.write_text("")

    assert cluster.await_line(server, "has let go of it")
    assert server.wait(DEADLINE) == 0


def test_server_that_stays_is_not_ended_by_a_word(make_cluster):
    """The coordinator may know first: its word counts once the view says that the task leaves; an old one goes."""
    cluster = make_cluster(jobs={"worker": 2})
    word = released(cluster, "worker", 1)
    server = cluster.serve("worker", 1)
    cluster.await_line(server, "serving /job:worker/task:1")
    word.write_text("")
    os.utime(word, (0, 0))
    while word.exists():
        assert server.poll() is None
        time.sleep(0.05)

    word.write_text("")
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(2)
    assert word.exists()
    cluster.leaving = {"worker": ((1, 2),)}
    cluster.publish(epoch=2)

    assert server.wait(DEADLINE) == 0


#: Serves by the Python function, in a thread of a program that has other things to do.
SERVE_IN_A_THREAD = """
import signal, sys, threading
from tfcluster_resolver import TFClusterResolver, serve

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
    server = cluster.start("worker", 0, "-c", BLOCK_SIGTERM + SERVE_IN_A_THREAD, address)
    said = cluster.await_line(server, "serving /job:worker/task:1 of")

    server.send_signal(signal.SIGTERM)

    assert said.endswith(f"port {address.rpartition(':')[2]}\n")
    assert server.communicate(timeout=DEADLINE)[0] == "the program ends by itself\n"
    assert server.returncode == 0


#: Else a signal before sigwait() would end the program, in whichever thread.
BLOCK_SIGTERM = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})"


def test_tensorflow_aborts_for_the_job_that_serve_refuses(make_cluster):
    """TensorFlow's Server ends its process with SIGABRT for a job name with a hyphen; ``serve`` says so instead."""
    cluster = make_cluster(jobs={"my-worker": 1})
    address = cluster.addresses["my-worker"][0]
    theirs = f"import tensorflow as tf; tf.distribute.Server({{'my-worker': [{address!r}]}}, 'my-worker', 0)"

    aborted = cluster.run("my-worker", 0, "-c", theirs)
    refused = cluster.run("my-worker", 0, "-m", "tfcluster_resolver", "serve")

    assert aborted.returncode == -signal.SIGABRT
    assert (refused.returncode, refused.stderr.count("\n")) == (71, 1)
    assert "cannot serve a job named 'my-worker'" in refused.stderr


def test_what_keeps_a_server_from_serving_is_said(make_cluster):
    """A taken port, and an rpc layer that TensorFlow does not have, end it with exit code 71."""
    cluster = make_cluster(jobs={"worker": 1})
    port = int(cluster.addresses["worker"][0].rpartition(":")[2])
    with socket.create_server(("", port)):
        done = cluster.run("worker", 0, "-m", "tfcluster_resolver", "serve")
    assert done.returncode == 71
    assert f"port {port} is taken" in done.stderr

    change_view(cluster, lambda view: view.update(rpcLayer="pigeon"))
    done = cluster.run("worker", 0, "-m", "tfcluster_resolver", "serve")
    assert done.returncode == 71
    assert "TensorFlow cannot serve /job:worker/task:0" in done.stderr


def test_server_runs_from_the_archive(make_cluster, tmp_path):
    sys.path.append(str(ROOT / "operator"))
    from tfcluster_operator.resolver_sources import read_archive

    archive = tmp_path / "tfcluster_resolver.zip"
    archive.write_bytes(read_archive().content)
    cluster = make_cluster(jobs={"worker": 1})
    server = Forked(
        [sys.executable, "-m", "tfcluster_resolver", "serve"],
        env=cluster.environment("worker", 0) | {"PYTHONPATH": str(archive)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        cluster.await_line(server, "serving /job:worker/task:0")
        done = cluster.run("worker", 0, "-m", "tfcluster_resolver", "wait", "--timeout", "0")
        server.send_signal(signal.SIGTERM)

        assert (server.wait(DEADLINE), done.returncode) == (143, 0)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_doctor_of_a_serving_task(make_cluster):
    """Beside a real server ``doctor`` finds the port answered as gRPC is, the peer there, TensorFlow in agreement."""
    cluster = make_cluster(jobs={"worker": 2})
    cluster.serve_all("worker")

    done = cluster.run("worker", 0, "-m", "tfcluster_resolver", "doctor", "--json")

    assert done.returncode == 0, done.stdout
    found = {one["name"]: (one["verdict"], one["message"]) for one in json.loads(done.stdout)["checks"]}
    assert {verdict for verdict, _ in found.values()} == {"ok"}, done.stdout
    assert found["own port"][1].endswith("is answered by a gRPC server, as TensorFlow's is")
    assert found["peers"][1] == "1 of 1 other tasks accept connections"
    assert found["tensorflow"][1].endswith("takes the resolver as one of its own")


#: What TensorFlow's own resolver reads from TF_CONFIG.
READ_TF_CONFIG = """
import json
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
task = resolver.task_type, resolver.task_id
print(json.dumps([resolver.cluster_spec().as_dict(), *task, resolver.rpc_layer, resolver.master(*task)]))
"""
#: What its strategies check; they take no sparse cluster.
ACCEPT_TF_CONFIG = """
from tensorflow.python.distribute import multi_worker_util
multi_worker_util._validate_cluster_spec(resolver.cluster_spec(), *task)
# NB: MultiWorkerMirroredStrategy counts an evaluator among its own kind.
assert multi_worker_util.worker_count(resolver.cluster_spec(), task[0]) == {"worker": 3, "evaluator": 1}[task[0]]
"""


def read_tf_config(cluster, job, index, program):
    """Run a program with the TF_CONFIG that a command finds after ``exec``, and return what it prints."""
    show = [sys.executable, "-c", "import os; print(os.environ['TF_CONFIG'])"]
    shown = cluster.run(job, index, "-m", "tfcluster_resolver", "exec", "--", *show)
    assert shown.returncode == 0, shown.stderr
    environment = cluster.environment(job, index) | {"TF_CONFIG": shown.stdout.strip()}
    done = run(["-c", program], env=environment, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("job", ["worker", "evaluator"])
def test_tensorflow_reads_what_exec_writes(make_cluster, job):
    """TensorFlow's own resolver reads cluster, task and rpc layer of TF_CONFIG, and its strategies accept them."""
    cluster = make_cluster(jobs={"chief": 1, "worker": 2, "evaluator": 1})
    change_view(cluster, lambda view: view["jobs"].pop("evaluator"))
    index = 1 if job == "worker" else 0

    printed = read_tf_config(cluster, job, index, READ_TF_CONFIG + ACCEPT_TF_CONFIG)

    seen = {one: cluster.addresses[one] for one in {"chief", "worker", job}}
    assert json.loads(printed) == [seen, job, index, "grpc", f"grpc://{cluster.addresses[job][index]}"]


def test_tensorflow_reads_a_sparse_cluster_that_exec_writes(make_cluster):
    cluster = make_cluster(jobs={"chief": 1, "worker": 4})
    workers = cluster.addresses["worker"]
    change_view(cluster, lambda view: view["jobs"].update(worker={"1": workers[1]}))

    printed = read_tf_config(cluster, "worker", 3, READ_TF_CONFIG)

    seen = {"chief": cluster.addresses["chief"], "worker": {"1": workers[1], "3": workers[3]}}
    assert json.loads(printed) == [seen, "worker", 3, "grpc", f"grpc://{workers[3]}"]
