"""A program whose worker's machine vanishes silently; run in separate network and mount namespaces.

Its argument is a folder. It prints, as JSON, how many closures the other workers did in the meantime, the longest time
without a closure among them, and how long the new machine's worker took for its first one after it listened: null if it
did none within a minute.
"""

# ruff: noqa: E402 - the paths come first

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "tests")]
sys.path.append(str(ROOT))

from loopback_cluster import LoopbackCluster

OLD, NEW = "127.0.0.9", "127.0.0.10"


def name_to(ip: str) -> None:
    """Resolve the worker's name to an address."""
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n{ip} worker1.lab\n")


def main(folder: Path) -> dict[str, Any]:
    """Disconnect a machine while closures run, and replace it with another one."""
    name_to(OLD)
    cluster = LoopbackCluster(folder, {"chief": 1, "worker": 3, "ps": 1})
    cluster.addresses["worker"][1] = cluster.addresses["worker"][1].replace("127.0.0.1", "worker1.lab")
    cluster.pods = {"worker": {0: "a", 1: "b", 2: "c"}}
    cluster.publish(1)
    cluster.serve_all("worker", "ps")
    os.environ.update(cluster.environment("chief", 0))
    try:
        return lose(cluster)
    finally:
        cluster.end()


class Program:
    def __init__(self) -> None:
        import tensorflow as tf

        from tfcluster_resolver import TFClusterResolver, connect_to_cluster

        self.resolver = TFClusterResolver()
        now = self.resolver.snapshot()
        connect_to_cluster(now)
        strategy = tf.distribute.ParameterServerStrategy(now)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

        @tf.function
        def step(iterator: Any) -> Any:
            next(iterator)
            process = tf.strings.to_number(tf.strings.split(tf.io.read_file("/proc/self/stat"))[0], tf.int32)
            return process, tf.timestamp()

        dataset = tf.function(lambda: tf.data.Dataset.range(10**9))
        self._step, self._lost = step, tf.errors.OpError
        self._iterator = iter(self.coordinator.create_per_worker_dataset(dataset))
        self._values: list[Any] = []
        self._stop = threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def _feed(self) -> None:
        while not self._stop.is_set():
            self._values.append(self.coordinator.schedule(self._step, args=(self._iterator,)))
            while sum(not _is_done(value) for value in self._values[-50:]) > 9 and not self._stop.is_set():
                time.sleep(0.005)

    def done(self) -> list[tuple[int, float]]:
        """Return process and time of each completed closure, except those that only a lost worker reported."""
        told = []
        for value in list(self._values):
            if _is_done(value):
                with contextlib.suppress(self._lost):
                    process, when = value.fetch()
                    told.append((int(process), float(when)))
        return told

    def end(self) -> int:
        """Wait for all closures; return how many are lost."""
        self._stop.set()
        self._feeder.join()
        self.coordinator.join()
        return sum(not _is_done(value) for value in self._values)


def _is_done(value: Any) -> bool:
    return bool(value._status_available_event.is_set())


def lose(cluster: LoopbackCluster) -> dict[str, Any]:
    from tfcluster_resolver import follow

    program = Program()
    follower = follow(program.coordinator, program.resolver)
    follower.wait_for_epoch(1)
    while len(program.done()) < 50:
        time.sleep(0.05)

    for direction in ("-d", "-s"):
        subprocess.run(["iptables", "-A", "INPUT", direction, OLD, "-p", "tcp", "-j", "DROP"], check=True)
    lost = time.time()
    cluster.kill("worker", 1)
    cluster.pods["worker"][1] = "d"
    cluster.publish(1)
    (new,) = cluster.serve(("worker", 1))
    name_to(NEW)
    listens = time.time()
    took = None
    while took is None and time.time() < listens + 60:
        took = next((when for process, when in program.done() if process == new.pid), None)
        time.sleep(0.05)
    end = took or time.time()
    others = sorted(when for process, when in program.done() if process != new.pid and lost <= when <= end)
    gap = max(after - before for before, after in zip([lost, *others], [*others, end], strict=True))
    seen = {"others": len(others), "gap": gap, "until": None if took is None else max(0.0, took - listens)}
    if took is not None:
        seen["lost"] = program.end()
    follower.close()
    return seen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
