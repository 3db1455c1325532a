"""What it takes to reach a task: its address, and the causes why it may not answer."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tfcluster_resolver.errors import AddressError

#: Connections at one time where the limit is not known.
_UNKNOWN_LIMIT: Final = 128

#: How HTTP/2, and so gRPC, begins (RFC 9113, 3.4), with the settings that must follow: none.
GRPC_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME_HEADER: Final = 9
_SETTINGS: Final = 4


class Cause(Enum):
    """Why a task could not be reached, and where to look."""

    UNRESOLVED = "name does not resolve (is there a pod of that name, and does the cluster's DNS answer?)"
    NO_POD = "no pod (its Service's name resolves and its own does not: look at `kubectl get pods` and their events)"
    REFUSED = "connection refused (the pod is not ready: it is there and nothing listens; look at its log)"
    TIMED_OUT = "timed out (nothing answers: is the pod running, does a NetworkPolicy drop it?)"
    NOT_GRPC = "no gRPC answer (something accepts connections: a server that hangs, a proxy, or another program?)"
    UNREACHABLE = "network error"

    @classmethod
    def of_error(cls, number: int) -> Cause:
        """Give the cause that an error of connect(2) stands for, by its number."""
        return {errno.ECONNREFUSED: cls.REFUSED, errno.ETIMEDOUT: cls.TIMED_OUT}.get(number, cls.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class MissingTask:
    """A task that did not answer: its job, index and address, and the cause at the last attempt."""

    job: str
    index: int
    address: str
    cause: Cause

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index} at {self.address}: {self.cause.value}"


def host_and_port(address: str) -> tuple[str, int]:
    """Take an address apart.

    Raises:
        AddressError: the text is no such address.
    """
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536):
        raise AddressError(f"{address!r} is not an address of the form host:port, as TensorFlow wants it")
    if "/" in host:
        raise AddressError(f"{address!r} has a scheme or a path; TensorFlow's addresses are host:port alone")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_grpc(answer: bytes) -> bool | None:
    """Tell whether a server answers the greeting as gRPC does: with a frame of settings."""
    return answer[3] == _SETTINGS if len(answer) >= _FRAME_HEADER else None


def descriptors(most: int, *, part: int) -> int:
    """Tell how many descriptors may be used at once, so that the program keeps some."""
    try:
        import resource  # noqa: PLC0415 - Windows has no such module, and no such limit

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the names alone
    except (ImportError, OSError):
        return _UNKNOWN_LIMIT
    return most if limit == resource.RLIM_INFINITY else max(1, min(most, (limit - used) // part))
