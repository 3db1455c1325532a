"""Connecting real TensorFlow processes: filters, updates, rejections, strategies."""

import json
import socket

from loopback_cluster import DEADLINE, ROOT, LoopbackCluster

from tfcluster_resolver.waiting.addresses import host_and_port

BEGIN = """
import json, sys
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, connect_to_cluster, errors
resolver = TFClusterResolver()
"""
CONNECT = f"""{BEGIN}
connect_to_cluster(resolver, timeout=120)
"""


def test_connected_tasks_are_the_view(parameter_servers: LoopbackCluster):
    """In a scope of another device it is rejected before anything is connected; a second call changes nothing."""
    printed = parameter_servers.program(
        CONNECT.replace(
            "connect_to_cluster(resolver",
            """
from tensorflow.python.eager import context
for scope in ("/job:worker/task:1", "/device:GPU:0"):
    try:
        with tf.device(scope):
            connect_to_cluster(resolver, timeout=120)
    except errors.DeviceScopeError:
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


def test_filters_hold_under_parameter_server_strategy(parameter_servers: LoopbackCluster):
    """ParameterServerStrategy's own filters would show a worker every ps."""
    printed = parameter_servers.program(
        CONNECT
        + """
strategy = tf.distribute.ParameterServerStrategy(resolver)

def double_of(ps):
    with tf.device(f"/job:ps/task:{ps}"):
        variable = tf.Variable(7.0)
    return tf.function(lambda: variable * 2.0)

@tf.function
def elsewhere():
    with tf.device("/job:worker/task:0"):
        return tf.random.uniform([]) + 1.0

def on_worker(function):
    try:
        with tf.device("/job:worker/task:1"):
            return float(function())
    except tf.errors.InvalidArgumentError as error:
        return error.message

print(json.dumps([on_worker(one) for one in (double_of(ps=0), double_of(ps=1), elsewhere)]))
"""
    )

    shown, hidden, misplaced = json.loads(printed)
    assert shown == 14.0
    assert "/job:ps/replica:0/task:1/device:CPU:0 unknown device" in hidden
    assert "was explicitly assigned to /job:worker/task:0" in misplaced
    assert "/job:ps/replica:0/task:0" in misplaced


def test_tensorflow_connects_by_the_resolver_itself(parameter_servers: LoopbackCluster):
    printed = parameter_servers.program(
        BEGIN
        + """
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


def test_changed_cluster_is_rejected(make_cluster):
    """The old one still works; a reset is rejected too, because TensorFlow never frees the chief's port."""
    cluster = make_cluster(jobs={"chief": 1, "worker": 1})
    cluster.serve_all("worker")
    chief = cluster.start(
        "chief",
        0,
        "-c",
        CONNECT
        + """
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
    except errors.ClusterChangedError as error:
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


def test_plain_connection_is_updated(parameter_servers: LoopbackCluster):
    """A new task can be used, the state of the others stays, and a task with state is not removed."""
    printed = parameter_servers.program(
        BEGIN
        + f"""
jobs = {parameter_servers.addresses}
def cluster(workers, **filters):
    spec = dict(jobs, worker=jobs["worker"][:workers])
    return TFClusterResolver.from_spec(spec, "chief", 0, **filters)

def update(to):
    try:
        connect_to_cluster(to, on_change="update", timeout=60)
    except errors.TFClusterError as error:
        return [type(error).__name__, str(error)]

connect_to_cluster(cluster(1), timeout=60)
with tf.device("/job:ps/task:0"):
    variable = tf.Variable(7.0)

@tf.function
def double():
    return variable * 2.0

def on(worker):
    with tf.device(f"/job:worker/task:{{worker}}"):
        return float(double())

first = on(0)
filtered = update(cluster(2, device_filters={{"worker": {{1: ["/job:ps"]}}}}))
grown = update(cluster(2))
second = on(1)
with tf.device("/job:worker/task:1"):
    kept = tf.Variable(1.0, name="kept")
refused = update(cluster(1))
still = on(1)
del kept
gone = update(cluster(1))
devices = [one.name for one in tf.config.list_logical_devices() if "/job:worker" in one.name]
strategy = tf.distribute.ParameterServerStrategy(cluster(1))
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
coordinated = update(cluster(2))
print(json.dumps([first, filtered, grown, second, refused, still, gone, on(0), devices, coordinated]))
"""
    )

    first, filtered, grown, second, refused, still, gone, last, devices, coordinated = json.loads(printed)
    assert [first, second, still, last] == [14.0] * 4
    assert filtered[0] == "ClusterChangedError"
    assert "/job:worker/task:1 would not hold" in filtered[1]
    assert grown is gone is None
    assert refused[0] == "ClusterChangedError"
    assert "variable kept:0 on /job:worker/replica:0/task:1" in refused[1]
    assert devices == ["/job:worker/replica:0/task:0/device:CPU:0"]
    assert coordinated[0] == "ClusterChangedError"
    assert "call resize() or follow() with it instead" in coordinated[1]


def test_second_connect_repairs(make_cluster):
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

    cluster.kill("worker", 0)
    cluster.serve(("worker", 0))
    cluster.publish(epoch=2)

    assert json.loads(cluster.await_line(chief, "[")) == [6.0, 7.0]


def test_missing_task_is_named(make_cluster):
    """A port that accepts connections without a response would block TensorFlow forever, so it counts as missing."""
    cluster = make_cluster(jobs={"chief": 1, "ps": 2})
    with socket.create_server(host_and_port(cluster.addresses["ps"][1])):
        done = cluster.run("chief", 0, "-c", CONNECT.replace("timeout=120", "timeout=1"))
    assert done.returncode == 1
    assert f"/job:ps/task:0 at {cluster.addresses['ps'][0]}: connection refused" in done.stderr
    assert f"/job:ps/task:1 at {cluster.addresses['ps'][1]}: no gRPC answer" in done.stderr


def test_connecting_follows_a_resize(make_cluster):
    cluster = make_cluster(jobs={"chief": 1, "worker": 2})
    cluster.serve(("worker", 0))
    chief = cluster.start(
        "chief",
        0,
        "-c",
        BEGIN
        + """
connect_to_cluster(resolver, timeout=120)
print(json.dumps([device.name[: device.name.index("/replica")] + device.name[device.name.index("/task") :]
                  for device in tf.config.list_logical_devices("CPU")]), flush=True)
""",
    )

    tried(cluster.addresses["worker"][1])
    cluster.addresses["worker"].pop()
    cluster.publish(epoch=2)
    assert json.loads(cluster.await_line(chief, "[")) == [
        "/job:chief/task:0/device:CPU:0",
        "/job:worker/task:0/device:CPU:0",
    ]


def tried(address: str) -> None:
    """Wait until a connection to an address without a listener is attempted."""
    with socket.create_server(host_and_port(address)) as server:
        server.settimeout(DEADLINE)
        server.accept()[0].close()


def test_tensorflow_connection_failure_raises_connect_error(make_cluster):
    cluster = make_cluster(jobs={"chief": 1})
    done = cluster.run("chief", 0, "-c", CONNECT.replace("timeout=120", 'timeout=120, protocol="nothing"'))
    assert "ConnectError: TensorFlow cannot connect /job:chief/task:0 to tests/loopback" in done.stderr
    assert "No server factory registered" in done.stderr


def test_evaluator_does_not_connect(make_cluster):
    cluster = make_cluster(jobs={"chief": 1, "evaluator": 1})
    own = cluster.addresses.pop("evaluator")
    cluster.publish(epoch=1)
    cluster.addresses["evaluator"] = own
    done = cluster.run("evaluator", 0, "-c", CONNECT)
    assert "CoordinatorNotInClusterError: /job:evaluator/task:0 is not in the ClusterSpec" in done.stderr


def test_training_example_ends_after_an_error(make_cluster):
    """An error ends the program immediately, without a wait for a lost task, also as process 1 without SIGTERM."""
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
