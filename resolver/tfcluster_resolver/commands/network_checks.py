"""The checks of ``doctor`` that ask the network: the own name, the own port, and the other tasks.

A check takes bounded time, and raises for nothing but an address that is none.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.commands.checks import Check, Verdict
from tfcluster_resolver.waiting import wait_for_tasks
from tfcluster_resolver.waiting.own_port import PortState, port_state, speaks_grpc
from tfcluster_resolver.waiting.reachability import host_and_port

#: Seconds that a name's look-up gets at least: a live DNS server answers in milliseconds.
_LOOK_UP: Final = 3.0


def own_name(membership: Membership, timeout: float) -> Check:
    """Tell whether the name that the others use for this task leads here.

    Raises:
        AddressError: the own address is not "host:port".
    """
    own = membership.own
    if own is None:
        return Check("own name", Verdict.SKIPPED, "this process is no task of the cluster")
    host, _ = host_and_port(own.address)
    timeout = max(timeout, _LOOK_UP)
    addresses = _addresses(host, timeout)
    if not addresses:
        return Check(
            "own name",
            Verdict.FAILED,
            f"{host} does not resolve" if addresses is not None else f"looking up {host} takes over {timeout:g} s",
            f"Is there a headless Service {membership.view.name}, and does the cluster's DNS answer?",
        )
    foreign = [address for address in addresses if not _is_here(address)]
    if foreign:
        return Check(
            "own name",
            Verdict.FAILED,
            f"{host} leads to {', '.join(foreign)}, which is not this pod",
            "Another pod has the name, or a DNS cache is older than this pod: wait for its time to live, then look for "
            "a second pod with this hostname and subdomain",
        )
    return Check("own name", Verdict.OK, f"{host} is {', '.join(addresses)}, which is this pod")


def own_port(membership: Membership) -> Check:
    """Tell whether this task's port is free, or a gRPC server's as TensorFlow's is.

    Raises:
        AddressError: the own address is not "host:port".
    """
    own = membership.own
    if own is None:
        return Check("own port", Verdict.SKIPPED, "this process is no task of the cluster")
    _, port = host_and_port(own.address)
    state = port_state(port)
    if state is PortState.FORBIDDEN:
        return Check(
            "own port",
            Verdict.FAILED,
            f"this user may not listen on port {port}",
            "Set a port above 1023 in the TFCluster",
        )
    if state is PortState.FREE:
        return Check("own port", Verdict.OK, f"port {port} is free: no server of this task runs yet")
    if any(speaks_grpc(host, port) for host in ("127.0.0.1", "::1")):
        return Check("own port", Verdict.OK, f"port {port} is answered by a gRPC server, as TensorFlow's is")
    return Check(
        "own port",
        Verdict.FAILED,
        f"port {port} is taken by a program that does not answer as TensorFlow's server does",
        "Set another port in the TFCluster, or move that program",
    )


def peers(membership: Membership, timeout: float) -> Iterator[Check]:
    """Tell which other tasks accept a connection, and why not.

    Raises:
        AddressError: an address is not "host:port".
    """
    own = membership.own
    others = [each for each in membership.tasks() if own is None or each[:2] != (own.job, own.index)]
    if not others:
        yield Check("peers", Verdict.SKIPPED, "this task sees no other")
        return
    missing = wait_for_tasks(others, timeout=timeout)
    verdict = Verdict.FAILED if missing else Verdict.OK
    yield Check("peers", verdict, f"{len(others) - len(missing)} of {len(others)} other tasks accept connections")
    for one in missing:
        host, namespace = host_and_port(one.address)[0], membership.view.namespace
        pod = host.partition(".")[0]
        # NB: an IP address names no pod: `tfcluster local run` has such.
        numeric = ":" in host or pod.isdigit()
        yield Check(
            f"peer /job:{one.job}/task:{one.index}",
            Verdict.FAILED,
            f"{one.address}: {one.cause.value}",
            "Look at the log of that task"
            if numeric
            else f"`kubectl -n {namespace} describe pod {pod}` and `kubectl -n {namespace} logs {pod}` tell more",
        )


def _addresses(host: str, timeout: float) -> list[str] | None:
    """Look a name up; None if that takes too long."""
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            found.extend(str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))

    # NB: a look-up cannot be interrupted, so it is left behind.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(timeout)
    return None if thread.is_alive() else sorted(set(found))


def _is_here(address: str) -> bool:
    """Tell whether an IP address is one of this machine's: only such a one can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
