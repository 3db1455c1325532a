"""connect_to_cluster(on_change="update"): a plain connection whose cluster changes, with real task servers."""

from __future__ import annotations

import json

from loopback_cluster import LoopbackCluster


def test_plain_connection_is_updated(parameter_servers: LoopbackCluster):
    """A new task can be used, what lives on the others stays, and a task on which something lives does not go."""
    printed = parameter_servers.program(
        f"""
import json
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, connect_to_cluster, errors

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
