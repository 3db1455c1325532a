"""What is on this task's own TCP port: nothing, a gRPC server, or something that is none."""

from __future__ import annotations

import socket
from enum import Enum
from typing import Final

#: How HTTP/2, and so gRPC, begins (RFC 9113, 3.4), with the settings that must follow: none.
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME_HEADER: Final = 9
_SETTINGS: Final = 4
#: Seconds that a server on this machine gets to greet back.
_ANSWER: Final = 3.0


class PortState(Enum):
    """What a program that wants to listen on a port meets."""

    FREE = "free"
    TAKEN = "taken"
    FORBIDDEN = "forbidden"


def port_state(port: int) -> PortState:
    """Tell whether this process could listen on a port.

    Args:
        port: TCP port, 0 for any.

    Returns:
        What it would meet.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except PermissionError:
        return PortState.FORBIDDEN
    except OSError:
        return PortState.TAKEN
    return PortState.FREE


def speaks_grpc(host: str, port: int) -> bool:
    """Tell whether what listens on a port greets as a gRPC server does.

    Args:
        host: name or IP address.
        port: TCP port.

    Returns:
        Whether the first frame of its answer is HTTP/2's SETTINGS.
    """
    try:
        with socket.create_connection((host, port), timeout=_ANSWER) as connection:
            connection.sendall(_GREETING)
            header = b""
            while len(header) < _FRAME_HEADER:
                part = connection.recv(_FRAME_HEADER - len(header))
                if not part:
                    return False
                header += part
    except OSError:
        return False
    return header[3] == _SETTINGS
