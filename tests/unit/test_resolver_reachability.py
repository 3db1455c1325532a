"""Waiting for tasks, with real sockets on loopback."""

from __future__ import annotations

import socket
import threading

import pytest

from tfcluster_resolver.errors import AddressError
from tfcluster_resolver.waiting import Cause, MissingTask, host_and_port, wait_for_tasks


@pytest.fixture
def listening():
    """The address of a socket that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def closed() -> str:
    """Give an address at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def test_tasks_that_listen_are_not_missing(listening):
    """Nothing is missing where every task accepts a connection, nor where there are no tasks."""
    assert wait_for_tasks([("worker", 0, listening), ("worker", 1, listening)], timeout=0) == ()
    assert wait_for_tasks([], timeout=0) == ()


def test_each_missing_task_has_its_cause(listening):
    """Tasks that do not answer come back in order, each with its cause and a text that names it."""
    refused = closed()
    tasks = [("worker", 0, refused), ("worker", 1, listening), ("ps", 3, "no-such-host.invalid:1")]

    missing = wait_for_tasks(tasks, timeout=0)

    assert missing == (
        MissingTask("worker", 0, refused, Cause.REFUSED),
        MissingTask("ps", 3, "no-such-host.invalid:1", Cause.UNRESOLVED),
    )
    assert str(missing[0]).startswith(f"/job:worker/task:0 at {refused}: connection refused")


def test_missing_pod_is_told_from_a_missing_name(monkeypatch):
    """A name that does not resolve although its Service's does has no pod; where neither does, DNS may be at fault."""
    real = socket.getaddrinfo

    def resolve(host: str, *arguments: object, **options: object) -> object:
        if host != "c.n.svc":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    tasks = [("worker", 1, "c-worker-1.c.n.svc:2222"), ("ps", 0, "d-ps-0.d.n.svc:2222"), ("ps", 1, "lone:1")]

    missing = wait_for_tasks(tasks, timeout=0)

    assert [one.cause for one in missing] == [Cause.NO_POD, Cause.UNRESOLVED, Cause.UNRESOLVED]
    assert str(missing[0]).startswith("/job:worker/task:1 at c-worker-1.c.n.svc:2222: no pod")


def test_silent_task_times_out(monkeypatch):
    """A task whose network swallows the attempt is missing because it timed out."""

    def swallow(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", swallow)

    assert [one.cause for one in wait_for_tasks([("ps", 0, "h:1")], timeout=0)] == [Cause.TIMED_OUT]


def test_task_that_starts_late_is_waited_for():
    """A task that begins to listen while it is waited for is not missing."""
    address = closed()
    host, port = host_and_port(address)
    refused, servers = threading.Event(), []

    def listen() -> None:
        refused.wait()
        servers.append(socket.create_server((host, port)))

    real = socket.create_connection

    def connect(*arguments: object, **options: object) -> socket.socket:
        try:
            return real(*arguments, **options)
        except ConnectionRefusedError:
            refused.set()
            raise

    thread = threading.Thread(target=listen)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", connect)
        missing = wait_for_tasks([("worker", 0, address)], timeout=60)
    thread.join()
    servers[0].close()

    assert missing == ()


@pytest.mark.parametrize(
    ("address", "parts"),
    [("host:2222", ("host", 2222)), ("[::1]:1", ("::1", 1)), ("10.0.0.1:65535", ("10.0.0.1", 65535))],
)
def test_addresses_are_taken_apart(address, parts):
    """Host and port of an address, also of an IPv6 one."""
    assert host_and_port(address) == parts


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:65536", "grpc://host:1", "host:1_0"])
def test_what_is_no_address_is_refused(address):
    """A text that is not host:port is refused at once, because TensorFlow would wait for it for ever."""
    with pytest.raises(AddressError):
        wait_for_tasks([("worker", 0, address)], timeout=60)
