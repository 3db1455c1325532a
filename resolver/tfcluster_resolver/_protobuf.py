"""The door to protobuf: TensorFlow's messages of a cluster, with TensorFlow or without.

It decides whose message classes are used: TensorFlow's where it is installed, so that TensorFlow takes what we make;
otherwise classes of the same names and fields, made from a checked-in descriptor set.  Ours live in a pool of their
own, so that TensorFlow can be imported before or after.  Nothing of protobuf is imported before a call needs it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass, fields
from typing import Any, Final

from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.errors import ProtobufNotFoundError

#: The protobuf package of TensorFlow's messages.
PACKAGE: Final = "tensorflow"
#: Where the descriptor set lies in this package; ``python -m scripts.protos`` makes it from the .proto files beside it.
DESCRIPTOR_SET: Final = "protos/messages.binpb"


@dataclass(frozen=True, slots=True)
class Messages:
    """The classes of the messages that describe a cluster."""

    ClusterDef: Any
    JobDef: Any
    ServerDef: Any
    ClusterDeviceFilters: Any
    JobDeviceFilters: Any
    TaskDeviceFilters: Any


def messages(purpose: str) -> Messages:
    """Give the message classes.

    Raises:
        ProtobufNotFoundError: protobuf is not installed, or older than 4.22.
    """
    if tensorflow_api.is_installed():
        return _theirs(tensorflow_api.load(purpose).train)
    return own_messages(purpose)


def own_messages(purpose: str) -> Messages:
    """Give our message classes, whether TensorFlow is installed or not.

    Raises:
        ProtobufNotFoundError: protobuf is not installed, or older than 4.22.
    """
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
    """Tell whether a value is a ClusterDef message, of TensorFlow's class or ours, without importing either."""
    descriptor = getattr(type(value), "DESCRIPTOR", None)
    return getattr(descriptor, "full_name", None) == f"{PACKAGE}.ClusterDef"


def _theirs(train: Any) -> Messages:
    """Find the classes that are not in TensorFlow's public interface through the fields of those that are."""
    # NB: not by message_factory, which lacks GetMessageClass in protobuf 3.20, and TensorFlow 2.15 allows that one.
    filters = train.ServerDef().cluster_device_filters
    job = filters.jobs.add()
    return Messages(train.ClusterDef, train.JobDef, train.ServerDef, type(filters), type(job), type(job.tasks[0]))


@functools.cache
def _own() -> Messages:
    descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
    # NB: not the default pool, where TensorFlow's files of the same message names would clash with ours.
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    # NB: importing the package must be quick, and this module brings half of the standard library.
    resources = importlib.import_module("importlib.resources")
    content = resources.files("tfcluster_resolver").joinpath(DESCRIPTOR_SET).read_bytes()
    for file in descriptors.FileDescriptorSet.FromString(content).file:
        pool.AddSerializedFile(file.SerializeToString())
    factory = importlib.import_module("google.protobuf.message_factory")
    return Messages(
        **{
            one.name: factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{one.name}"))
            for one in fields(Messages)
        }
    )
