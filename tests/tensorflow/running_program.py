"""A ParameterServerStrategy program that runs while its cluster changes, controlled line by line."""

import json
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from fork_server import Forked
from loopback_cluster import DEADLINE, LoopbackCluster

#: The program's start. A closure adds one to a variable, reads its worker's iterator and table, and returns its
#: process, so that each effect can be counted.
_BEGIN = """
import collections, json, os, sys, threading, time
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, connect_to_cluster, follow, resize
from tfcluster_resolver import errors

resolver = TFClusterResolver()
now = resolver.snapshot()
connect_to_cluster(now, timeout=120)
strategy = tf.distribute.ParameterServerStrategy(now)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0, name="total")
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [7]), -1)
traces = []

def process_id():
    return tf.strings.to_number(tf.strings.split(tf.io.read_file("/proc/self/stat"))[0], tf.int32)

@tf.function
def step(iterator):
    traces.append(1)
    total.assign_add(1.0)
    return process_id(), next(iterator), table.lookup(tf.constant("a"))

@tf.function
def until(path):
    # The name depends on the round, and the result on the loop: else TensorFlow looks once, or never.
    def missing(at):
        name = tf.strings.join([path, tf.strings.substr(tf.strings.as_string(at), 0, 0)])
        return tf.equal(tf.size(tf.io.matching_files(name)), 0)
    rounds, = tf.while_loop(missing, lambda at: (at + 1,), (0,))
    with tf.control_dependencies([rounds]):
        total.assign_add(1.0)
    return process_id()

def dataset():
    return iter(coordinator.create_per_worker_dataset(tf.function(lambda: tf.data.Dataset.range(10**9))))

def schedule(count, of=None):
    return [coordinator.schedule(step, args=(iterator if of is None else of,)) for _ in range(count)]

def tell(values):
    "Say what closures did: where, the gain of the variable since it was told last, and what was read twice or skipped."
    coordinator.join()
    where, read = collections.Counter(), collections.defaultdict(list)
    for value in values:
        process, element, found = (int(x) for x in value.fetch())
        where[process] += 1
        read[process].append(element)
        assert found == 7
    gain, told[0] = float(total.numpy()) - told[0], float(total.numpy())
    positions = {process: sorted(elements) for process, elements in read.items()}
    gaps = [process for process, elements in positions.items()
            if elements != list(range(elements[0], elements[0] + len(elements)))]
    return dict(gain=gain, where=where, firsts={process: each[0] for process, each in positions.items()}, gaps=gaps,
                traces=len(traces))

def takes(process):
    "Go on until a process takes closures; the limit of the test ends it."
    while True:
        found = tell(schedule(12))
        if process in found["where"]:
            return found

def sizes(change):
    parts = (change.added, change.removed, change.replaced)
    return [[f"/job:{task.job}/task:{task.index}" for task in part] for part in parts]

def resized():
    "Resize, and say what came, what went, what was replaced, and why anything else was not followed."
    change = resize(coordinator, resolver, timeout=60)
    return [*sizes(change), [str(one) for one in change.refused]]

def worker_threads():
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("WorkerClosure"))

told = [0.0]
iterator = dataset()
result = None
"""

#: Follows, with closures queued all the time; records the changes.
FOLLOW = """
changes, values, stop = [], [], threading.Event()
following = follow(coordinator, resolver, on_change=lambda change: changes.append(change))
def feed():
    while not stop.is_set():
        values.extend(schedule(1))
        while sum(not value._status_available_event.is_set() for value in values[-20:]) > 10 and not stop.is_set():
            time.sleep(0.001)
feeder = threading.Thread(target=feed)
def goes_on():
    assert feeder.is_alive(), "a closure failed, and none is queued any more: the log says why"
tell([])
feeder.start()
"""

_LOOP = """
import faulthandler, json, logging, signal, sys
faulthandler.register(signal.SIGUSR1)  # a test that hangs can be asked where
logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
logging.getLogger("tfcluster_resolver").setLevel(logging.DEBUG)
scope = {}
for line in sys.stdin:
    try:
        exec(json.loads(line), scope)
        answer = {"result": scope.pop("result", None)}
    except Exception as error:
        answer = {"error": [type(error).__name__, str(error)]}
    print("answer", json.dumps(answer), flush=True)
"""


class RunningProgram:
    """The chief of a serving cluster, in a process that lives as long as the tests of a module."""

    def __init__(self, cluster: LoopbackCluster) -> None:
        self.cluster = cluster
        self._log = cluster.folder / "program.log"
        self._epoch = 1
        self._first = {job: list(addresses) for job, addresses in cluster.addresses.items()}
        self._process = Forked(
            [sys.executable, "-c", _LOOP],
            env=cluster.environment("chief", 0),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("a"),
            text=True,
        )
        try:
            self.do(_BEGIN)
        except BaseException:
            self.end()
            raise

    def do(self, text: str) -> Any:
        self.begin(text)
        return self.end_of()

    def begin(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()

    def end_of(self) -> Any:
        """Wait for the started text, and return ``result``."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(DEADLINE, self._end_where_it_hangs)
        watchdog.start()
        try:
            for line in self._process.stdout:
                if line.startswith("answer "):
                    answer = json.loads(line.removeprefix("answer "))
                    assert "error" not in answer, f"{answer['error']}\n{self.log()}"
                    return answer["result"]
        finally:
            watchdog.cancel()
        raise AssertionError(f"the program ended with {self._process.wait()}: {self.log()}")

    def _end_where_it_hangs(self) -> None:
        """Print the stack of a program that hangs, and end it: otherwise each later test would wait for it."""
        self._process.send_signal(signal.SIGUSR1)
        time.sleep(3)
        self._process.kill()

    def publish(self) -> int:
        self._epoch += 1
        self.cluster.publish(self._epoch)
        return self._epoch

    def publish_pods(self) -> None:
        self.cluster.publish(self._epoch)

    def serve(self, job: str, count: int) -> list[int]:
        """Start more tasks without publishing them; return their processes."""
        tasks = [(job, self.cluster.add_task(job)) for _ in range(count)]
        return [server.pid for server in self.cluster.serve(*tasks)]

    def serve_again(self, index: int) -> None:
        """Restart the server of a published worker, and wait until it accepts closures."""
        (server,) = self.cluster.serve(("worker", index))
        self.do(f"takes({server.pid})")

    def grow(self, job: str = "worker") -> int:
        """Start one more task and publish it; return its process."""
        (process,) = self.serve(job, 1)
        self.publish()
        return process

    def shrink(self, job: str = "worker") -> str:
        address = self.cluster.addresses[job].pop()
        self.publish()
        return address

    def reset(self, **sizes: int) -> None:
        """Return the program to its first tasks, and end the processes of all others."""
        if not self.is_alive():
            return
        for job, size in sizes.items():
            self.cluster.addresses[job] = self._first[job][:size]
        self.cluster.pods.clear()
        self.publish()
        self.do("resize(coordinator, resolver, timeout=60)\ntell([])")
        self.cluster.keep(sizes)

    def pid(self, job: str, index: int) -> int:
        return self.cluster.process(job, index).pid

    def log(self) -> str:
        return self._log.read_text()[-20_000:]

    def leave(self) -> int:
        """End the program normally, and return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(DEADLINE)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """End the program in any state, and its cluster."""
        self._process.kill()
        self._process.wait()
        self.cluster.end()
