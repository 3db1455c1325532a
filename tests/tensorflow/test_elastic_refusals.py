"""The requirements of live resize: a supported TensorFlow, and progress while a machine is lost."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from loopback_cluster import DEADLINE, ROOT

RESOLVER = ROOT / "resolver" / "tfcluster_resolver" / "_tensorflow"


def test_unsupported_tensorflow_is_rejected(make_cluster):
    """An untested version, and one that lacks any name that is used, is rejected before anything else.

    The unmodified one is accepted: then the error is about the argument, such as a strategy that TensorFlow cannot
    resize.
    """
    printed = make_cluster(jobs={"chief": 1}).program(
        """
import importlib, json, sys
import tensorflow as tf
from tfcluster_resolver import TFClusterResolver, errors, follow, resize

def said(call, coordinator=None):
    try:
        call(coordinator, TFClusterResolver())
    except errors.TFClusterError as error:
        return [type(error).__name__, str(error)]

version = tf.__version__
tf.__version__ = "2.99.0"
unknown = [said(resize), said(follow)]
tf.__version__ = version

from tensorflow.python.distribute.coordinator import cluster_coordinator
kept = cluster_coordinator.Worker._on_worker_recovery
del cluster_coordinator.Worker._on_worker_recovery
lacking = said(resize)
cluster_coordinator.Worker._on_worker_recovery = kept
taken = [said(resize), said(resize, tf.distribute.MultiWorkerMirroredStrategy())]

from tfcluster_resolver._tensorflow import private
unnoticed = []
for place, words in private._USED.items():
    assert not private._missing(place, words), place
    module, _, path = place.partition(":")
    owner = importlib.import_module(module)
    *parts, last = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    if isinstance(owner, property):
        continue
    original = vars(owner)[last]
    for other in (None, lambda self: None):
        setattr(owner, last, other)
        if not private._missing(place, words):
            unnoticed.append(place)
    setattr(owner, last, original)
print(json.dumps([unknown, lacking, taken, unnoticed]))
"""
    )

    unknown, lacking, taken, unnoticed = json.loads(printed)
    for name, text in unknown:
        assert name == "RestartNeededError"
        assert "TensorFlow 2.99.0 cannot be resized in place" in text
        assert "Nothing was changed. Save a checkpoint, end this process and start it again" in text
    assert lacking[0] == "RestartNeededError"
    assert "_on_worker_recovery" in lacking[1]
    assert taken[0][0] == "ArgumentTypeError"
    assert taken[1][0] == "RestartNeededError"
    assert "a MultiWorkerMirroredStrategy cannot be resized" in taken[1][1]
    assert unnoticed == []


def test_every_private_name_is_checked():
    """The module that uses TensorFlow's private names uses none that the check leaves out."""
    checked = (RESOLVER / "private.py").read_text()
    used = [one for one in ast.walk(ast.parse((RESOLVER / "workers.py").read_text())) if isinstance(one, ast.Attribute)]
    own = {one.attr for one in used if isinstance(one.value, ast.Name) and one.value.id == "self"}
    touched = {one.attr for one in used if one.attr.startswith("_") and not one.attr.startswith("__")} - own
    assert touched
    assert {attribute for attribute in touched if attribute not in checked} == set()


def test_lost_machine_does_not_block_others(tmp_path: Path):
    """A worker's machine drops every packet; the others continue, and the new one accepts closures once it listens.

    TensorFlow alone continues when the kernel closes the old connection, after minutes; the limit is far above the
    measured time, and far below those minutes.
    """
    hosts = tmp_path / "hosts"
    hosts.write_text("")
    program = f"{sys.executable} {Path(__file__).with_name('stall_program.py')} {tmp_path}/cluster"

    done = subprocess.run(
        ["unshare", "-n", "-m", "sh", "-c", f"ip link set lo up && mount --bind {hosts} /etc/hosts && exec {program}"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["lost"] == 0
    assert seen["until"] is not None
    assert seen["others"] > 0
    assert seen["gap"] < 60
