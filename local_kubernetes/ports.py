"""Which ports of 127.0.0.1 the tools and the tests take."""

import fcntl
import os
import random
import socket

from local_kubernetes.cache import cache_root
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
    """Choose ports that no program listens on, and reserve them: no other process gets them until this one ends.

    Raises:
        LocalKubernetesError: Fewer are free.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if _reserve(port):
            found.append(port)
        if len(found) == count:
            return found
    raise LocalKubernetesError(f"fewer than {count} free ports between {PORTS[0]} and {PORTS[-1]}")


def _reserve(port: int) -> bool:
    """Lock the file of a port and bind the port once; say whether both worked."""
    folder = cache_root() / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    # Never closed: the end of the process releases the lock. The file stays, so that all processes lock the same.
    lock = os.open(folder / str(port), os.O_CREAT | os.O_RDONLY, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind(("", port))
    except OSError:
        os.close(lock)
        return False
    return True
