"""A Kubernetes API server in memory: the store of `tfcluster local`, and what only tests need of one."""

from tfcluster.local.store import Answer, Change, Refusal, Request, Resource, Scale, resource_of_definition

from .admission import Admission, AdmissionHook
from .interception import ConnectionLost, Interceptor
from .server import DEFAULT_RESOURCES, TFCLUSTERS, MemoryKubernetes, Record
from .session import MemorySession

__all__ = [
    "DEFAULT_RESOURCES",
    "TFCLUSTERS",
    "Admission",
    "AdmissionHook",
    "Answer",
    "Change",
    "ConnectionLost",
    "Interceptor",
    "MemoryKubernetes",
    "MemorySession",
    "Record",
    "Refusal",
    "Request",
    "Resource",
    "Scale",
    "resource_of_definition",
]
