"""Addresses at which a connection is refused."""

from __future__ import annotations

import socket


def refusing_address() -> str:
    """Give an address of 127.0.0.1 that refuses connections.

    The port is bound without a listener until the process ends, so no other program can listen on it.
    """
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{held.getsockname()[1]}"
    held.detach()
    return address
