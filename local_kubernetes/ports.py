"""Which ports of 127.0.0.1 a control plane takes."""

from __future__ import annotations

import random
import socket

from local_kubernetes.components import Addresses
from local_kubernetes.progress import LocalKubernetesError

PORTS = range(10000, 30000)
"""Below the ports that Linux gives to outgoing connections and below NodePorts, so a port stays ours over a restart."""


def loopback_addresses() -> Addresses:
    """Choose free ports on 127.0.0.1."""
    api, etcd, peer = free_ports(3)
    return Addresses(
        host="127.0.0.1",
        bind="127.0.0.1",
        advertise="127.0.0.1",
        api_port=api,
        etcd_port=etcd,
        etcd_peer_port=peer,
        service_range="198.19.0.0/24",  # RFC 2544's range for tests, routed nowhere
    )


def free_ports(count: int) -> list[int]:
    """Choose ports of 127.0.0.1 that nobody listens on now.

    Args:
        count: How many.
    """
    found: list[int] = []
    for port in random.sample(PORTS, 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise LocalKubernetesError(f"fewer than {count} free ports between {PORTS.start} and {PORTS.stop}")
