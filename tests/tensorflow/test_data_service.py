"""tf.data service by the addresses of the view: who prepares the data, and that data workers may come while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopback_cluster import ROOT, LoopbackCluster

pytestmark = pytest.mark.exhaustive

SERVE = str(ROOT / "examples" / "serve_data.py")
#: Serves data in a folder of its own, which holds the task's name: what a batch reads there tells who made the batch.
SERVE_NAMED = """
import os, runpy, sys
os.chdir(sys.argv[1])
runpy.run_path(sys.argv[2], run_name="__main__")
"""
#: Takes data for ever, and says each new name of a data worker that made some.
TAKE = """
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver
service = tf.data.experimental.service
dispatcher = TFClusterResolver().snapshot().cluster_spec().task_address("dispatcher", 0)
names = tf.data.Dataset.range(1).repeat().map(lambda _: tf.io.read_file("name"))
names = names.apply(service.distribute(processing_mode=service.ShardingPolicy.OFF, service=f"grpc://{dispatcher}"))
known = set()
for name in names:
    if name.numpy() not in known:
        known.add(name.numpy())
        print("made by", name.numpy().decode(), flush=True)
"""


def serve(cluster: LoopbackCluster, folder: Path, job: str, index: int) -> None:
    """Start a server of the data service in a folder of its own."""
    place = folder / f"{job}-{index}"
    place.mkdir()
    (place / "name").write_text(f"{job}-{index}")
    cluster.await_line(cluster.start(job, index, "-c", SERVE_NAMED, str(place), SERVE), "serving data as")


def test_data_are_made_by_the_data_workers_also_by_one_that_comes_later(make_cluster, tmp_path):
    """The chief finds the dispatcher in the view, and takes data of both data workers, and of a third that is added."""
    cluster: LoopbackCluster = make_cluster(jobs={"chief": 1, "dispatcher": 1, "dataworker": 2})
    serve(cluster, tmp_path, "dispatcher", 0)
    for index in (0, 1):
        serve(cluster, tmp_path, "dataworker", index)
    chief = cluster.start("chief", 0, "-c", TAKE)
    first = {cluster.await_line(chief, "made by").split()[-1] for _ in range(2)}

    third = cluster.add_task("dataworker")
    cluster.publish(epoch=2)
    serve(cluster, tmp_path, "dataworker", third)

    assert first == {"dataworker-0", "dataworker-1"}
    assert cluster.await_line(chief, "made by").split()[-1] == "dataworker-2"


def test_data_service_example_learns(make_cluster):
    cluster: LoopbackCluster = make_cluster(jobs={"chief": 1, "dispatcher": 1, "dataworker": 1})
    for job in ("dispatcher", "dataworker"):
        cluster.await_line(cluster.start(job, 0, SERVE), "serving data as")

    done = cluster.run("chief", 0, str(ROOT / "examples" / "train_digits_data_service.py"), "--epochs", "20")

    assert done.returncode == 0, done.stderr[-6000:] + cluster.logs()
    *_, last, end = done.stdout.splitlines()
    assert end == "done"
    assert last.startswith("pass 20:")
    assert float(last.split()[-1]) > 0.85
