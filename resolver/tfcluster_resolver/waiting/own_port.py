"""The port of the own task: who may listen there, and who does.

A task that serves and a task that connects each open the port of their own address.  Where it is taken, TensorFlow
fails late and leaves a process that can connect no more, so we look first.
"""

from __future__ import annotations

import socket
from enum import Enum

from tfcluster_resolver.errors import PortTakenError, ServeError
from tfcluster_resolver.waiting import wait_for_tasks
from tfcluster_resolver.waiting.reachability import host_and_port


class PortState(Enum):
    """What a program that wants to listen on a port meets."""

    FREE = "free"
    TAKEN = "taken"
    FORBIDDEN = "forbidden"


def port_state(port: int) -> PortState:
    """Tell whether this process could listen on a port, of every address of this machine as TensorFlow does."""
    try:
        with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
            if probe.family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except PermissionError:
        return PortState.FORBIDDEN
    except OSError:
        return PortState.TAKEN
    return PortState.FREE


def speaks_grpc(host: str, port: int) -> bool:
    """Tell whether what listens on a port greets as a gRPC server does."""
    return not wait_for_tasks([("", 0, f"[{host}]:{port}")], timeout=0, grpc=True)


def require_free(job: str, index: int, address: str) -> None:
    """Refuse to connect as a task whose port this process cannot open.

    Raises:
        PortTakenError: another program listens on the port, or this one does already.
        ServeError: this user may not listen there.
        AddressError: the address is not "host:port".
    """
    _, port = host_and_port(address)
    state = port_state(port)
    if state is PortState.FORBIDDEN:
        raise ServeError(
            f"to connect as /job:{job}/task:{index}, this process must listen on port {port}, which this user may not: "
            "choose a port above 1023 in the TFCluster"
        )
    if state is PortState.TAKEN:
        server = any(speaks_grpc(host, port) for host in ("127.0.0.1", "::1"))
        raise PortTakenError(
            f"to connect as /job:{job}/task:{index}, this process must listen on port {port}, where "
            f"{'a task server' if server else 'another program'} listens already. A task either serves or connects: "
            f"let the command of this pod be your program"
            f"{' and not `python -m tfcluster_resolver serve`' if server else ''}; or connect from a second process as "
            'nobody, with job_name="localhost", if no task has to reach it'
        )
