"""Programs for pods with TensorFlow: each is the text of one module, given to ``python3 -c`` in a task's pod."""

from __future__ import annotations

from typing import Any, Final

from support.objects import Object

#: Does nothing until it is told to end; others run their programs beside it.
IDLE: Final = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
while True:
    signal.pause()
"""

#: Runs a training program until it ends or /tmp/end holds the exit code with which to end amid it.
END_AMID: Final = """
import os, pathlib, runpy, sys, threading, time
order = pathlib.Path("/tmp/end")
def end():
    while not (text := order.read_text().strip() if order.exists() else ""):
        time.sleep(0.05)
    os._exit(int(text))
threading.Thread(target=end, daemon=True).start()
sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: Connects as the chief and prints, as JSON, what comes of computing on worker 0 with what other tasks hold: by
#: functions, which run on the worker and see what it sees, and by an eager operation, for which the chief moves data.
USE_OTHER_TASKS: Final = """
import json, os
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, connect_to_cluster

connect_to_cluster(TFClusterResolver().snapshot(), timeout=120)

def at(task):
    return f"/job:{task[0]}/task:{task[1]}/device:CPU:0"

def held_by(task):
    with tf.device(at(task)):
        return tf.Variable(20.0)

def read(task):
    variable = held_by(task)

    @tf.function
    def function():
        return variable + 1.0

    return function

def placed_on(task):
    @tf.function
    def function():
        with tf.device(at(task)):
            return tf.constant(20.0) + 1.0

    return function

def outcome(function):
    try:
        with tf.device(at(("worker", 0))):
            return float(function())
    except tf.errors.InvalidArgumentError as error:
        return str(error)

shown, filtered = ("ps", 0), ("worker", 1)
told = {
    "placed on the ps": outcome(placed_on(shown)),
    "read from the ps": outcome(read(shown)),
    "placed on the other worker": outcome(placed_on(filtered)),
    "read from the other worker": outcome(read(filtered)),
    "moved by the chief": outcome(held_by(filtered).read_value),
}
print(json.dumps(told), flush=True)
os._exit(0)
"""

#: Counts the own task's accelerators and prints, as JSON, the counts and the warnings.
COUNT_AND_WARNINGS: Final = """
import json, warnings
from tfcluster_resolver import TFClusterResolver
from tfcluster_resolver.errors import AcceleratorMismatchWarning
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    counts = dict(TFClusterResolver().num_accelerators())
print(json.dumps([counts, [str(one.message) for one in caught if one.category is AcceleratorMismatchWarning]]))
"""


def stock_template(image: str, **container: Any) -> Object:
    """Build a pod template with TensorFlow."""
    about = {"name": "tensorflow", "image": image, "imagePullPolicy": "IfNotPresent"}
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{**about, **container}]}}


def with_folder(template: Object, *, node: str) -> Object:
    """Return a pod template's container the folder /kept of a node, which outlives the pod and which all share."""
    spec = template["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec["volumes"] = [{"name": "kept", "hostPath": {"path": "/tmp", "type": "Directory"}}]  # noqa: S108 - the node's
    spec["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    return template
