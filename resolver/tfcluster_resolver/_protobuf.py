"""TensorFlow's protobuf messages of a cluster, with TensorFlow or without.

If TensorFlow is installed, its own classes are used, so that TensorFlow accepts our messages; otherwise classes with
the same names and fields, built from a checked-in descriptor set.  Ours have a pool of their own, so that TensorFlow
can be imported before or after.  Nothing of protobuf is imported before a call needs it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any, Final, NamedTuple

from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.errors import ProtobufNotFoundError

#: The path of the descriptor set in this package, which ``python -m scripts.protos`` builds from the .proto file.
DESCRIPTOR_SET: Final = "protos/messages.binpb"


class Messages(NamedTuple):
    ClusterDef: Any
    ClusterDeviceFilters: Any


def messages(purpose: str) -> Messages:
    """Return the message classes; ProtobufNotFoundError where protobuf is not installed, or older than 4.22."""
    if not tensorflow_api.is_installed():
        return own_messages(purpose)
    train = tensorflow_api.load(purpose).train
    # Not by message_factory, which lacks GetMessageClass in protobuf 3.20, and TensorFlow 2.15 allows that one.
    return Messages(train.ClusterDef, type(train.ServerDef().cluster_device_filters))


def own_messages(purpose: str) -> Messages:
    """Return our message classes, whether TensorFlow is installed or not."""
    try:
        factory = importlib.import_module("google.protobuf.message_factory")
    except ImportError as error:
        raise ProtobufNotFoundError(
            f"{purpose} needs protobuf, which {sys.executable} cannot import: `pip install protobuf`"
        ) from error
    if not hasattr(factory, "GetMessageClass"):
        version = importlib.import_module("google.protobuf").__version__
        raise ProtobufNotFoundError(
            f"{purpose} needs protobuf 4.22 or newer, and {sys.executable} has {version}: `pip install -U protobuf`"
        )
    return _own()


def is_cluster_def(value: object) -> bool:
    """Return whether a value is a ClusterDef message, of TensorFlow's class or ours, without importing either."""
    descriptor = getattr(type(value), "DESCRIPTOR", None)
    return getattr(descriptor, "full_name", None) == "tensorflow.ClusterDef"


@functools.cache
def _own() -> Messages:
    descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
    # Not the default pool, where TensorFlow's files of the same message names would clash with ours.
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    # Importing the package must be quick, and this module brings half of the standard library.
    resources = importlib.import_module("importlib.resources")
    content = resources.files("tfcluster_resolver").joinpath(DESCRIPTOR_SET).read_bytes()
    for file in descriptors.FileDescriptorSet.FromString(content).file:
        pool.AddSerializedFile(file.SerializeToString())
    find = importlib.import_module("google.protobuf.message_factory").GetMessageClass
    return Messages(*(find(pool.FindMessageTypeByName(f"tensorflow.{name}")) for name in Messages._fields))
