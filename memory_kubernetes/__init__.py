"""A Kubernetes API server in memory, at the level of the HTTP session.

``MemoryKubernetes`` holds the objects and answers any actor directly; ``MemorySession`` is what
``aiohttp.ClientSession`` is to a client of the API.  It needs the standard library only and has one clock, which the
caller gives.
"""

from memory_kubernetes.admission import Admission, AdmissionHook
from memory_kubernetes.interception import ConnectionLost, Interceptor
from memory_kubernetes.messages import Answer, Record, Request
from memory_kubernetes.refusals import Refusal
from memory_kubernetes.resources import DEFAULT_RESOURCES, Resource, Scale, resource_of_definition
from memory_kubernetes.server import MemoryKubernetes
from memory_kubernetes.session import MemorySession
from memory_kubernetes.state import Change

__all__ = [
    "DEFAULT_RESOURCES",
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
