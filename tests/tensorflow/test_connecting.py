"""Connecting real TensorFlow processes: filters, repairs, refusals, strategies."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess

from loopback_cluster import DEADLINE, ROOT, LoopbackCluster

from tfcluster_resolver.waiting.addresses import host_and_port

CONNECT = """
import json
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, connect_to_cluster
resolver = TFClusterResolver()
connect_to_cluster(resolver, timeout=120)
"""


def outcome(expression: str) -> str:
    """Write a program's lines that print how a TensorFlow function ended."""
    return f"""
try:
    print(json.dumps(float({expression})))
except tf.errors.InvalidArgumentError as error:
    print(json.dumps(error.message))
"""


def read_from(worker: int, ps: int) -> str:
    """Write a program in which a worker's function reads a variable on a ps."""
    return (
        CONNECT
        + f"""
with tf.device("/job:ps/task:{ps}"):
    variable = tf.Variable(7.0)

@tf.function
def read():
    return variable * 2.0

def on_worker():
    with tf.device("/job:worker/task:{worker}"):
        return read()
"""
        + outcome("on_worker()")
    )


def test_connected_tasks_are_the_view(parameter_servers: LoopbackCluster):
    """After connecting, TensorFlow's devices are those of every task of the view, and the own CPU is the default.

    In a scope of another device it is refused before anything is connected, and called again it stays as it is.
    """
    printed = parameter_servers.program(
        CONNECT.replace(
            "connect_to_cluster(resolver",
            """
from tensorflow.python.eager import context
from tfcluster_resolver.errors import DeviceScopeError
for scope in ("/job:worker/task:1", "/device:GPU:0"):
    try:
        with tf.device(scope):
            connect_to_cluster(resolver, timeout=120)
    except DeviceScopeError:
        assert context.get_server_def() is None
    else:
        raise AssertionError(scope)
connect_to_cluster(resolver""",
        )
        + """
connect_to_cluster(resolver, timeout=120)
assert context.context().device_name == "/job:chief/replica:0/task:0/device:CPU:0"
names = sorted({device.name.split("/replica")[0] + "/task:" + device.name.split("/task:")[1].split("/")[0]
                for device in tf.config.list_logical_devices("CPU")})
print(json.dumps([names, tf.constant(1.0).device]))
"""
    )

    assert json.loads(printed) == [
        ["/job:chief/task:0", "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1"],
        "/job:chief/replica:0/task:0/device:CPU:0",
    ]


def test_function_reaches_what_its_filters_show(parameter_servers: LoopbackCluster):
    assert json.loads(parameter_servers.program(read_from(worker=1, ps=0))) == 14.0


def test_function_cannot_reach_what_its_filters_hide(parameter_servers: LoopbackCluster):
    message = json.loads(parameter_servers.program(read_from(worker=1, ps=1)))
    assert "/job:ps/replica:0/task:1/device:CPU:0 unknown device" in message


def test_operation_on_a_hidden_task_is_refused(parameter_servers: LoopbackCluster):
    """A worker's function that places an operation on another worker fails: the filters show it only ps and chief."""
    text = (
        CONNECT
        + """
@tf.function
def elsewhere():
    with tf.device("/job:worker/task:0"):
        return tf.random.uniform([]) + 1.0

def on_worker():
    with tf.device("/job:worker/task:1"):
        return elsewhere()
"""
        + outcome("on_worker()")
    )

    message = json.loads(parameter_servers.program(text))

    assert "was explicitly assigned to /job:worker/task:0" in message
    assert "/job:ps/replica:0/task:0" in message


def test_filters_hold_under_parameter_server_strategy(parameter_servers: LoopbackCluster):
    """ParameterServerStrategy's own filters would show a worker every ps; after our connect the TFCluster's hold."""
    text = read_from(worker=0, ps=1).replace(
        "connect_to_cluster(resolver, timeout=120)",
        "connect_to_cluster(resolver, timeout=120)\nstrategy = tf.distribute.ParameterServerStrategy(resolver)",
    )
    assert "unknown device" in json.loads(parameter_servers.program(text))


def test_tensorflow_connects_by_the_resolver_itself(parameter_servers: LoopbackCluster):
    printed = parameter_servers.program(
        """
import json
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver
resolver = TFClusterResolver()
tf.config.experimental_connect_to_cluster(resolver, job_name="chief", protocol=resolver.rpc_layer)
with tf.device("/job:worker/task:1"):
    there = tf.constant(1.0) + 1.0
print(json.dumps([tf.constant(1.0).device, there.device, float(there)]))
"""
    )

    assert json.loads(printed) == [
        "/job:chief/replica:0/task:0/device:CPU:0",
        "/job:worker/replica:0/task:1/device:CPU:0",
        2.0,
    ]


def test_parameter_server_strategy_trains_a_step(parameter_servers: LoopbackCluster):
    printed = parameter_servers.program(
        CONNECT
        + """
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(1.0)

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = (weight - 3.0) ** 2
    weight.assign_sub(0.25 * tape.gradient(loss, weight))

coordinator.schedule(step)
coordinator.join()
print(json.dumps([weight.device, float(weight.numpy())]))
"""
    )

    assert json.loads(printed) == ["/job:ps/replica:0/task:0/device:CPU:0", 2.0]


def test_multi_worker_mirrored_strategy_averages_over_processes(make_cluster):
    cluster = make_cluster(jobs={"worker": 2})
    text = """
import json
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver
resolver = TFClusterResolver().snapshot()
strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
mine = tf.constant(float(resolver.task_id + 1))
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", mine))
print(json.dumps([strategy.num_replicas_in_sync, float(total)]), flush=True)
"""
    first, second = cluster.start("worker", 0, "-c", text), cluster.start("worker", 1, "-c", text)

    assert json.loads(cluster.await_line(first, "[")) == [2, 3.0]
    assert json.loads(cluster.await_line(second, "[")) == [2, 3.0]


def test_changed_cluster_is_refused(make_cluster):
    """A second connect after the view got a task, or other filters, is refused, and the old cluster goes on working.

    A reset is refused too: the chief is a task of the ClusterSpec, whose port TensorFlow never frees.
    """
    cluster = make_cluster(jobs={"chief": 1, "worker": 1})
    cluster.serve_all("worker")
    chief = cluster.start(
        "chief",
        0,
        "-c",
        CONNECT
        + """
from tfcluster_resolver.errors import ClusterChangedError
with tf.device("/job:worker/task:0"):
    variable = tf.Variable(5.0)
frozen = resolver.snapshot()
print("connected", flush=True)
next(frozen.watch())
told = []
for arguments, options in (
    ((resolver,), {}),
    ((resolver,), {"on_change": "reset"}),
    ((frozen,), {"cluster_device_filters": {"worker": {0: ["/job:chief"]}}}),
):
    try:
        connect_to_cluster(*arguments, timeout=120, **options)
    except ClusterChangedError as error:
        told.append(str(error))
connect_to_cluster(frozen, timeout=120)
print(json.dumps([told, float(variable.numpy())]), flush=True)
""",
    )
    cluster.await_line(chief, "connected")

    cluster.add_task("worker")
    cluster.publish(epoch=2)

    told, value = json.loads(cluster.await_line(chief, "["))
    assert value == 5.0
    assert ["restoring a checkpoint" in text for text in told] == [True, True, True]
    assert [text.find("never closes the server") > 0 for text in told] == [False, True, False]
    assert "the device filters of /job:worker/task:0 differ" in told[2]


def test_second_connect_repairs(make_cluster):
    """A worker that came back at its address is usable after a second connect, and the ps keeps its variables."""
    cluster = make_cluster(jobs={"chief": 1, "worker": 1, "ps": 1})
    cluster.serve_all("worker", "ps")
    chief = cluster.start(
        "chief",
        0,
        "-c",
        CONNECT
        + """
with tf.device("/job:ps/task:0"):
    variable = tf.Variable(5.0)
with tf.device("/job:worker/task:0"):
    before = float(variable + 1.0)
following = resolver.watch()
print("connected", flush=True)
next(following)
connect_to_cluster(resolver, timeout=120)
with tf.device("/job:worker/task:0"):
    print(json.dumps([before, float(variable + 2.0)]), flush=True)
""",
    )
    cluster.await_line(chief, "connected")

    worker = cluster.process("worker", 0)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    cluster.await_line(cluster.serve("worker", 0), "serving")
    cluster.publish(epoch=2)

    assert json.loads(cluster.await_line(chief, "[")) == [6.0, 7.0]


def test_missing_task_is_named(make_cluster):
    """Connecting while a task does not answer ends with an error that names the task, its address and the cause.

    A task whose port accepts connections and answers none of them would block TensorFlow for ever, so it counts too.
    """
    cluster = make_cluster(jobs={"chief": 1, "ps": 2})
    with socket.create_server(host_and_port(cluster.addresses["ps"][1])):
        done = cluster.run("chief", 0, "-c", CONNECT.replace("timeout=120", "timeout=1"))
    assert done.returncode == 1
    assert f"/job:ps/task:0 at {cluster.addresses['ps'][0]}: connection refused" in done.stderr
    assert f"/job:ps/task:1 at {cluster.addresses['ps'][1]}: no gRPC answer" in done.stderr


def test_connecting_follows_a_resize(make_cluster):
    """A task that is scaled away while the chief waits for it is waited for no longer, and not connected to.

    A snapshot of the cluster with that task ends the wait, and says so.
    """
    cluster = make_cluster(jobs={"chief": 1, "worker": 2})
    cluster.await_line(cluster.serve("worker", 0), "serving")
    chief = cluster.start(
        "chief",
        0,
        "-c",
        """
import json
import sys
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, connect_to_cluster
from tfcluster_resolver.errors import SnapshotOutdatedError
resolver = TFClusterResolver()
try:
    connect_to_cluster(resolver.snapshot(), timeout=120)
except SnapshotOutdatedError as error:
    print(json.dumps(str(error).splitlines()), flush=True)
sys.stdin.readline()
connect_to_cluster(resolver, timeout=120)
print(json.dumps([device.name[: device.name.index("/replica")] + device.name[device.name.index("/task") :]
                  for device in tf.config.list_logical_devices("CPU")]), flush=True)
""",
        stdin=subprocess.PIPE,
    )

    tried(cluster.addresses["worker"][1])
    gone = cluster.addresses["worker"].pop()
    cluster.publish(epoch=2)
    told = json.loads(cluster.await_line(chief, "["))
    assert told[0].startswith("the snapshot of tests/loopback (epoch 1) is outdated")
    assert told[1].startswith(f"  /job:worker/task:1 at {gone}: ")
    assert told[3] == "  /job:worker/task:1"

    cluster.add_task("worker")
    cluster.publish(epoch=3)
    chief.stdin.write("\n")
    chief.stdin.close()
    tried(cluster.addresses["worker"][1])
    cluster.addresses["worker"].pop()
    cluster.publish(epoch=4)
    assert json.loads(cluster.await_line(chief, "[")) == [
        "/job:chief/task:0/device:CPU:0",
        "/job:worker/task:0/device:CPU:0",
    ]


def tried(address: str) -> None:
    """Wait until somebody tries an address at which nothing listens."""
    with socket.create_server(host_and_port(address)) as server:
        server.settimeout(DEADLINE)
        server.accept()[0].close()


def test_own_port_that_is_taken_is_refused(make_cluster):
    """A chief whose pod serves already is told so before TensorFlow tries, and connects once the port is free."""
    cluster = make_cluster(jobs={"chief": 1, "worker": 1})
    cluster.serve_all("chief", "worker")
    server = cluster.process("chief", 0)
    chief = cluster.start(
        "chief",
        0,
        "-c",
        """
import json
import sys
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, connect_to_cluster
from tfcluster_resolver.errors import PortTakenError
try:
    connect_to_cluster(TFClusterResolver(), timeout=120)
except PortTakenError as error:
    print(json.dumps(str(error)), flush=True)
sys.stdin.readline()
connect_to_cluster(TFClusterResolver(), timeout=120)
with tf.device("/job:worker/task:0"):
    print(json.dumps(float(tf.constant(1.0) + 1.0)), flush=True)
""",
        stdin=subprocess.PIPE,
    )

    told = json.loads(cluster.await_line(chief, '"'))
    server.kill()
    server.wait()
    server.stdout.close()
    chief.stdin.write("\n")
    chief.stdin.close()

    assert "to connect as /job:chief/task:0, this process must listen on port" in told
    assert "and not `python -m tfcluster_resolver serve`" in told
    assert json.loads(cluster.await_line(chief, "2.0")) == 2.0


def test_what_tensorflow_refuses_is_an_error_of_ours(make_cluster):
    cluster = make_cluster(jobs={"chief": 1})
    done = cluster.run("chief", 0, "-c", CONNECT.replace("timeout=120", 'timeout=120, protocol="nothing"'))
    assert "ConnectError: TensorFlow cannot connect /job:chief/task:0 to tests/loopback" in done.stderr
    assert "No server factory registered" in done.stderr


def test_evaluator_does_not_connect(make_cluster):
    """An evaluator is told that it is no task of the ClusterSpec, instead of waiting for ever."""
    cluster = make_cluster(jobs={"chief": 1, "evaluator": 1})
    own = cluster.addresses.pop("evaluator")
    cluster.publish(epoch=1)
    cluster.addresses["evaluator"] = own
    done = cluster.run("evaluator", 0, "-c", CONNECT)
    assert "CoordinatorNotInClusterError: /job:evaluator/task:0 is not in the ClusterSpec" in done.stderr


def test_training_example_learns(make_cluster):
    cluster = make_cluster(
        jobs={"chief": 1, "worker": 2, "ps": 1},
        filters={"worker": ("/job:ps", "/job:chief"), "ps": ("/job:worker", "/job:chief")},
    )
    cluster.serve_all("worker", "ps")

    done = cluster.run("chief", 0, str(ROOT / "examples" / "train_digits.py"), "--epochs", "4")

    assert done.returncode == 0, done.stderr[-6000:]
    lines = done.stdout.splitlines()
    assert "2 workers" in lines[0]
    assert lines[-1].startswith("done: accuracy ")
    first, *_, last = re.findall(r"pass \d: loss ([\d.]+)", done.stdout)
    assert float(last) < float(first)


def test_training_example_ends_after_an_error(make_cluster):
    """An error ends the program at once: nothing in it waits for a task that is lost, deaf to SIGTERM as process 1."""
    cluster = make_cluster(jobs={"chief": 1, "worker": 1, "ps": 1})
    example = str(ROOT / "examples" / "train_digits.py")
    program = f"""
import runpy, sys, threading
threading.Thread(target=threading.Event().wait).start()
sys.argv = [{example!r}, "--connect-timeout", "1"]
runpy.run_path({example!r}, run_name="__main__")
"""

    done = cluster.run("chief", 0, "-c", program)

    assert done.returncode == 1
    assert "TasksUnreachableError: " in done.stderr


def test_multi_worker_example_learns(make_cluster):
    cluster = make_cluster(jobs={"worker": 2})
    program = str(ROOT / "examples" / "train_digits_multiworker.py")
    workers = [cluster.start("worker", index, program, "--epochs", "4") for index in (0, 1)]

    passes = [[cluster.await_line(one, f"pass {number}: loss").split()[3] for number in (1, 4)] for one in workers]

    assert passes[0] == passes[1]
    assert float(passes[0][1].rstrip(",")) < float(passes[0][0].rstrip(","))
    for one in workers:
        cluster.await_line(one, "done")
