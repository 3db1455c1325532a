"""The messages that the package brings, without TensorFlow: made of its .proto files, loaded when needed."""

from __future__ import annotations

import re

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from scripts import protos
from tfcluster_resolver import ClusterSpec, _protobuf

MESSAGES = _protobuf.messages("a test")


def test_descriptor_set_is_that_of_the_sources():
    """The checked-in descriptor set is what the compiler makes of the .proto files: `python -m scripts.protos`."""
    made = descriptor_pb2.FileDescriptorSet.FromString(protos.compile_protos())
    checked_in = descriptor_pb2.FileDescriptorSet.FromString(protos.DESCRIPTOR_SET.read_bytes())

    assert checked_in == made
    assert {file.name for file in made.file} == {path.name for path in protos.PROTOS.glob("*.proto")}
    assert {file.package for file in made.file} == {"tensorflow"}


def test_compiler_sees_a_changed_source(tmp_path):
    """A changed field number changes what the compiler makes, and a broken source is an error."""
    for path in protos.PROTOS.glob("*.proto"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert protos.compile_protos(tmp_path) == protos.compile_protos()
    source = tmp_path / "cluster.proto"

    source.write_text(source.read_text().replace("job = 1;", "job = 9;"))
    assert protos.compile_protos(tmp_path) != protos.compile_protos()
    source.write_text("no protobuf")
    with pytest.raises(RuntimeError, match="do not compile"):
        protos.compile_protos(tmp_path)


def test_default_pool_stays_clean():
    """Our messages are not in protobuf's default pool, where TensorFlow puts its own of the same names."""
    assert MESSAGES.ClusterDef.DESCRIPTOR.full_name == "tensorflow.ClusterDef"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("tensorflow.ClusterDef")


def test_classes_are_made_once():
    """Each call gives the same classes, so that messages of two calls can be compared and merged."""
    assert _protobuf.messages("another test") == MESSAGES
    assert type(ClusterSpec({}).as_cluster_def()) is MESSAGES.ClusterDef


def test_session_options_pass_through():
    """The session options of a ServerDef, which our ConfigProto does not know, leave as they came."""
    options = b"\x38\x01\x0a\x07\x0a\x03CPU\x10\x02"
    server = MESSAGES.ServerDef(job_name="w", default_session_config=MESSAGES.ServerDef().default_session_config)
    content = server.SerializeToString() + b"\x22" + bytes([len(options)]) + options

    assert options in MESSAGES.ServerDef.FromString(content).SerializeToString()


@pytest.mark.parametrize("value", [None, 3, {}, MESSAGES.JobDef(), MESSAGES.ClusterDef, type("Fake", (), {})()])
def test_other_values_are_no_cluster_def(value):
    """Only a ClusterDef message is one: not its class, not another message."""
    assert not _protobuf.is_cluster_def(value)
    assert _protobuf.is_cluster_def(MESSAGES.ClusterDef())


def test_no_generated_code_is_brought():
    """The package holds no generated code, which would be bound to one major version of protobuf."""
    package = protos.PROTOS.parent

    assert not list(package.rglob("*_pb2*"))
    assert not [
        path for path in package.rglob("*.py") if re.search(r"^(from|import) google", path.read_text(), re.MULTILINE)
    ]
