"""Our messages next to TensorFlow's in one process, and alone with each major version of protobuf."""

import json
import os
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2
from resolver.resolver_world import ROOT, python

from tfcluster_resolver import ClusterDeviceFilters, ClusterSpec, _protobuf

OURS, THEIRS = _protobuf.own_messages("a test"), _protobuf.messages("a test")


def described(messages: _protobuf.Messages) -> dict[str, descriptor_pb2.DescriptorProto]:
    job = messages.ClusterDeviceFilters().jobs.add()
    held = (messages.ClusterDef().job.add(), job, job.tasks[0])
    descriptions = {}
    for kind in (*messages, *map(type, held)):
        description = descriptions[kind.DESCRIPTOR.full_name] = descriptor_pb2.DescriptorProto()
        kind.DESCRIPTOR.CopyToProto(description)
        description.field.sort(key=lambda field: field.number)
        for one in (description, *description.nested_type):
            for field in one.field:
                field.ClearField("json_name")
    return descriptions


def test_messages_are_tensorflows_where_it_is_installed():
    """With TensorFlow installed, its own classes are used, so that TensorFlow accepts our messages."""
    assert (tf.train.ClusterDef, type(tf.train.ServerDef().cluster_device_filters)) == THEIRS
    assert type(ClusterSpec({"w": ["a:1"]}).as_cluster_def()) is tf.train.ClusterDef


def test_our_messages_are_described_as_tensorflows():
    """Each of our messages has TensorFlow's fields: same names, numbers, types and labels, in any order."""
    assert described(OURS) == described(THEIRS)
    assert len(described(OURS)) == 5
    assert not set(OURS) & set(THEIRS)


def test_filters_become_tensorflows():
    ours = ClusterDeviceFilters()
    ours.set_device_filters("worker", 3, ["/job:ps", "/task:1"])
    ours.set_device_filters("ps", 0, [])
    theirs = tf.config.experimental.ClusterDeviceFilters()
    theirs.set_device_filters("worker", 3, ["/job:ps", "/task:1"])
    theirs.set_device_filters("ps", 0, [])

    assert type(ours.as_tensorflow()) is tf.config.experimental.ClusterDeviceFilters
    assert ours.as_tensorflow()._as_cluster_device_filters() == theirs._as_cluster_device_filters()
    assert ours.as_cluster_device_filters() == theirs._as_cluster_device_filters()


#: Both orders of import, and each version of protobuf, must support this.
USE_OURS = """
from tfcluster_resolver import ClusterDeviceFilters, ClusterSpec, _protobuf
own = _protobuf.own_messages("a test")
made = own.ClusterDef(job=[{"name": "w", "tasks": {0: "a:1", 3: "b:2"}}])
spec = ClusterSpec(own.ClusterDef.FromString(made.SerializeToString()))
assert spec.as_dict() == {"w": {0: "a:1", 3: "b:2"}}, spec
assert spec == ClusterSpec({"w": {0: "a:1", 3: "b:2"}})
"""
USE_THEIRS = """
import tensorflow as tf
theirs = tf.train.ServerDef(job_name="w", default_session_config=tf.compat.v1.ConfigProto(allow_soft_placement=True))
assert tf.train.ServerDef.FromString(theirs.SerializeToString()) == theirs
"""
USE_BOTH = """
assert type(spec.as_cluster_def()) is tf.train.ClusterDef
assert tf.train.ClusterSpec(spec.as_cluster_def()) == spec
print("done")
"""
USE_ALONE = """
import json, sys
assert spec.as_cluster_def() == made, spec.as_cluster_def()
filters = ClusterDeviceFilters()
filters.set_device_filters("w", 3, ["/job:ps"])
assert list(filters.as_cluster_device_filters().jobs[0].tasks[3].device_filters) == ["/job:ps"]
from google.protobuf import __version__
from google.protobuf.internal import api_implementation
assert "tensorflow" not in sys.modules
print(json.dumps([__version__, api_implementation.Type(), made.SerializeToString().hex()]))
"""


def run(program: str, *path: Path, flags: tuple[str, ...] = (), **environment: str) -> str:
    variables = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"} | environment
    done = python(*flags, "-c", program, path=[ROOT / "resolver", *path], environment=variables)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", [USE_OURS + USE_THEIRS, USE_THEIRS + USE_OURS], ids=["ours", "tensorflows"])
def test_both_live_in_one_process(program):
    assert run(program + USE_BOTH) == "done"


def versions() -> dict[str, Path]:
    """The folders with one version of protobuf each from the Makefile, by major version."""
    folders = [Path(one) for one in os.environ.get("TFCLUSTER_PROTOBUFS", "").split()]
    found = {folder.name.split("-")[1]: folder for folder in folders}
    assert set(found) == {"5", "6", "7"}, "TFCLUSTER_PROTOBUFS is not as `make tensorflow-tests` sets it"
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_every_major_version_of_protobuf_works(implementation):
    told = [
        # Without site-packages, which have TensorFlow and its own protobuf.
        json.loads(
            run(USE_OURS + USE_ALONE, folder, flags=("-S",), PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation)
        )
        for _, folder in sorted(versions().items())
    ]

    assert [version.partition(".")[0] for version, *_ in told] == ["5", "6", "7"]
    assert {kind for _, kind, _ in told} == {implementation}
    definitions = {tf.train.ClusterDef.FromString(bytes.fromhex(content)).SerializeToString() for *_, content in told}
    assert len(definitions) == 1
