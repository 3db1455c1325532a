"""The requirements of live resize: a supported TensorFlow, and progress while a machine is lost."""

import json
import subprocess
import sys
from pathlib import Path

from loopback_cluster import DEADLINE


def test_unsupported_tensorflow_is_rejected(make_cluster):
    """The unmodified one is accepted: then the error is about the argument."""
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

taken = [said(resize), said(resize, tf.distribute.MultiWorkerMirroredStrategy())]
print(json.dumps([unknown, taken]))
"""
    )

    unknown, taken = json.loads(printed)
    for name, text in unknown:
        assert name == "RestartNeededError"
        assert "TensorFlow 2.99.0 cannot be resized in place" in text
        assert "Nothing was changed. Save a checkpoint, end this process and start it again" in text
    assert taken[0][0] == "ArgumentTypeError"
    assert taken[1][0] == "RestartNeededError"
    assert "a MultiWorkerMirroredStrategy cannot be resized" in taken[1][1]


def test_lost_machine_does_not_block_others(tmp_path: Path):
    """TensorFlow alone continues after minutes; the limit is far below them, and far above the measured time."""
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
