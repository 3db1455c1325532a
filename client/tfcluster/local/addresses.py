"""Addresses on this machine: each task's ``host:port`` becomes a port of 127.0.0.1, the same over all its restarts.

The engine continues to speak of DNS names, as on Kubernetes; they are rewritten where a program sees them.
"""

import contextlib
import random
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tfcluster_resolver import contract

HOST: Final = "127.0.0.1"
#: The first port for outgoing connections, if the system does not report it.
_FIRST_EPHEMERAL: Final = 32768
_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: The number of ports below that one to choose from.
_CHOICE: Final = 12000
_LOWEST: Final = 10000
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"


class NoPortError(Exception):
    """No port is free."""


class Ports:
    """Assigns TCP ports that are free and outside the system's range for outgoing connections."""

    def __init__(self, choice: Sequence[int] | None = None) -> None:
        self._choice = default_choice() if choice is None else choice
        # Runs that begin at the same time get different ports: a port without a listener looks free.
        start = random.randrange(len(self._choice)) if choice is None else 0  # noqa: S311 - it is no secret
        self._next = iter((*self._choice[start:], *self._choice[:start]))

    def take(self) -> int:
        for port in self._next:
            if is_free(port):
                return port
        raise NoPortError(f"no TCP port from {self._choice[0]} to {self._choice[-1]} is free on {HOST}")


def is_free(port: int) -> bool:
    """Return whether a program could listen on a port, on all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("", port))
            # On Linux two sockets can be bound with SO_REUSEADDR while neither listens.
            probe.listen(1)
            return True
    return False


def default_choice() -> range:
    """Return the ports below the system's range for outgoing connections."""
    try:
        below = int(_RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        below = _FIRST_EPHEMERAL
    return range(max(_LOWEST, below - _CHOICE), below)


#: A pod's DNS name: its hostname, its Service, its namespace.
_Host = tuple[str, str, str]


class Addresses:
    """Maps the addresses of a cluster to ports on this machine."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._local: dict[tuple[_Host, int], int] = {}

    def local_port(self, address: str) -> int | None:
        """Return the port on this machine for an address; the first call assigns it."""
        host, _, port = address.rpartition(":")
        labels = host.split(".")
        if not port.isdecimal() or len(labels) < 4 or labels[3] != "svc":
            return None
        key = (labels[0], labels[1], labels[2]), int(port)
        if key not in self._local:
            self._local[key] = self._ports.take()
        return self._local[key]

    def local(self, address: str) -> str:
        """Return the local form of an address; an address that does not belong to a pod is not changed."""
        port = self.local_port(address)
        return address if port is None else f"{HOST}:{port}"

    def of_host(self, name: str, service: str, namespace: str) -> Iterator[tuple[int, int]]:
        """Return the ports of one pod, each with its port on this machine."""
        for (host, port), here in self._local.items():
            if host == (name, service, namespace):
                yield port, here

    def rewrite_view(self, text: str) -> str:
        """Rewrite the addresses in a view file; other texts are not changed."""
        try:
            view = contract.load(text)
        except contract.ContractError:
            return text
        jobs = {
            job: {index: self.local(one) for index, one in tasks.items()}
            if isinstance(tasks, Mapping)
            else tuple(self.local(one) for one in tasks)
            for job, tasks in view.jobs.items()
        }
        return contract.dump(replace(view, jobs=jobs))

    def rewrite(self, text: str, service: str, namespace: str) -> str:
        """Rewrite all addresses of one cluster's pods in a text."""
        if service not in text:
            return text
        domain = rf"\.{re.escape(namespace)}(?:\.svc(?:\.{_LABEL})*)?"
        pattern = rf"(?<![\w.-])({_LABEL})\.{re.escape(service)}(?:{domain})?(?::(\d{{1,5}}))?(?![\w-]|\.[a-z0-9])"

        def here(match: re.Match[str]) -> str:
            name, port = match[1], match[2]
            host = name, service, namespace
            if all(host != known for known, _ in self._local):
                return match[0]
            return HOST if port is None else f"{HOST}:{self._local.get((host, self._declared(int(port))), port)}"

        return re.sub(pattern, here, text)

    def _declared(self, port: int) -> int:
        """Return the declared port of a port on this machine: all tasks can declare the same, as $(PORT) says."""
        return next((declared for (_, declared), here in self._local.items() if here == port), port)
