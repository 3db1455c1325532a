"""MultiWorkerMirroredStrategy cannot follow a resize: RestartOnResize restarts it in the same processes."""

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from loopback_cluster import DEADLINE, LoopbackCluster

pytestmark = pytest.mark.exhaustive

#: Descends a parabola, step by step, forever. It checks after each step, and prints it.
TRAIN = """
import json, os, sys, time
import tensorflow as tf
from tfcluster_resolver import RestartOnResize
open_files = len(os.listdir("/proc/self/fd"))
restart = RestartOnResize()
cluster = restart.meet()
strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=cluster)
folder = sys.argv[1]
with strategy.scope():
    weight = tf.Variable(100.0)
steps = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(weight=weight, steps=steps)
latest = tf.train.latest_checkpoint(folder)
if latest:
    checkpoint.restore(latest).assert_consumed()

def save():
    own = folder if cluster.task_id == 0 else f"{folder}/other-{cluster.task_id}"
    checkpoint.save(f"{own}/checkpoint")

@tf.function
def step():
    def descend():
        weight.assign_sub(tf.distribute.get_replica_context().all_reduce("MEAN", 0.01 * weight))
    strategy.run(descend)

os.chdir("/")
while True:
    step()
    steps.assign_add(1)
    made = [int(steps), float(weight.numpy()), strategy.num_replicas_in_sync, os.getpid(), open_files]
    print(json.dumps(made), flush=True)
    restart.check(strategy, save)
    time.sleep(0.05)  # nobody reads both workers at once: a full pipe would stop them
"""


class Made(NamedTuple):
    number: int
    weight: float
    workers: int
    pid: int
    open_files: int


def made(process: subprocess.Popen[str], *, workers: int) -> list[Made]:
    """Read a worker's steps up to the first one among this number of workers."""
    read: list[Made] = []
    for line in process.stdout:
        if line.startswith("["):
            read.append(Made(*json.loads(line)))
            if read[-1].workers == workers:
                return read
    raise AssertionError(f"a worker ended with {process.wait()} before there were {workers}")


def test_equal_workers_go_from_two_to_three_to_two(make_cluster, tmp_path):
    cluster: LoopbackCluster = make_cluster(jobs={"worker": 2})
    saved, program = str(tmp_path / "saved"), tmp_path / "train.py"
    program.write_text(TRAIN)
    # A relative path, which must survive the program's own change of folder.
    words = (os.path.relpath(program), saved)
    two = [cluster.start("worker", index, *words) for index in (0, 1)]
    before = [made(worker, workers=2) for worker in two]
    third = cluster.add_task("worker")
    seen_by_two = cluster.folder
    cluster.folder = tmp_path / "newer"
    cluster.publish(epoch=2)
    newcomer = cluster.start("worker", third, *words)
    cluster.folder = seen_by_two
    cluster.publish(epoch=2)
    grown = [made(worker, workers=3) for worker in (*two, newcomer)]
    cluster.addresses["worker"].pop()
    cluster.publish(epoch=3)
    cluster.folder = tmp_path / "newer"
    cluster.publish(epoch=3)
    shrunk = [made(worker, workers=2) for worker in two]

    for worker in (0, 1):
        steps = before[worker] + grown[worker] + shrunk[worker]
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
        assert all(step.weight < earlier.weight for earlier, step in itertools.pairwise(steps))
        assert len({(step.pid, step.open_files) for step in steps}) == 1
    assert grown[2][0].number == grown[0][-1].number
    assert newcomer.wait(DEADLINE) == 0, cluster.logs()
    assert list(Path(saved).glob("checkpoint-*"))
