"""A program whose worker's machine vanishes silently; run in separate network and mount namespaces.

Its argument is a folder. It prints, as JSON, how many closures the other workers did in the meantime, the longest time
without a closure among them, how long the new machine's worker took for its first one after it listened, null if it did
none within a minute, and how many closures are lost.
"""

# ruff: noqa: E402 - the paths come first

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "tests")]
sys.path.append(str(ROOT))

from loopback_cluster import LoopbackCluster
from running_program import FOLLOW, RunningProgram

OLD, NEW = "127.0.0.9", "127.0.0.10"

#: Counts the closures by process, without those that only a lost worker reported.
COUNT = """
def done():
    found = collections.Counter()
    for value in list(values):
        if value._status_available_event.is_set():
            try:
                found[int(value.fetch()[0])] += 1
            except tf.errors.OpError:
                pass
    return found
while sum(done().values()) < 50:
    time.sleep(0.05)
"""

AWAIT_THE_NEW_ONE = """
listens = last = time.monotonic()
begun = before = sum(done().values())
gap, until = 0.0, None
while until is None and time.monotonic() < listens + 60:
    time.sleep(0.05)
    found, now = done(), time.monotonic()
    if PROCESS in found:
        until = now - listens
    count = sum(found.values())
    if count > before:
        gap, last, before = max(gap, now - last), now, count
seen = {"others": before - begun, "gap": max(gap, time.monotonic() - last), "until": until, "lost": None}
stop.set()
feeder.join()
if until is not None:
    coordinator.join()
    seen["lost"] = sum(not value._status_available_event.is_set() for value in values)
following.close()
result = seen
"""


def name_to(ip: str) -> None:
    """Resolve the worker's name to an address."""
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n{ip} worker1.lab\n")


def main(folder: Path) -> Any:
    """Disconnect a machine while closures run, and replace it with another one."""
    name_to(OLD)
    cluster = LoopbackCluster(folder, {"chief": 1, "worker": 3, "ps": 1})
    cluster.addresses["worker"][1] = cluster.addresses["worker"][1].replace("127.0.0.1", "worker1.lab")
    cluster.pods = {"worker": {0: "a", 1: "b", 2: "c"}}
    cluster.publish(1)
    cluster.serve_all("worker", "ps")
    program = RunningProgram(cluster)
    try:
        program.do(FOLLOW + COUNT)
        for direction in ("-d", "-s"):
            subprocess.run(["iptables", "-A", "INPUT", direction, OLD, "-p", "tcp", "-j", "DROP"], check=True)
        cluster.kill("worker", 1)
        cluster.pods["worker"][1] = "d"
        cluster.publish(1)
        (new,) = cluster.serve(("worker", 1))
        name_to(NEW)
        return program.do(AWAIT_THE_NEW_ONE.replace("PROCESS", str(new.pid)))
    finally:
        program.end()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
