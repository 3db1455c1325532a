"""Addresses on this machine: which ports are taken, and where names of pods and paths are rewritten."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from local_kubernetes.ports import free_ports
from tfcluster.local import addresses
from tfcluster.local.addresses import Addresses, NoPortError, Ports
from tfcluster.local.paths import Mapping, PathMap
from tfcluster.local.rewriting import Rewriting


def test_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    """Neither a port on which somebody listens, nor one that another run holds while nobody listens there yet."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        choice = [taken.getsockname()[1], *free_ports(1)]
        here, other = Ports(tmp_path, choice), Ports(tmp_path, choice)

        assert here.take() == choice[1]
        with pytest.raises(NoPortError):
            other.take()
        here.release()
        assert Ports(tmp_path, choice).take() == choice[1]


def test_runs_that_share_no_folder_share_no_port(tmp_path: Path) -> None:
    """As those of two users, of two jobs of continuous integration, or of two demos."""
    choice = free_ports(1)
    here, other = Ports(tmp_path / "here", choice), Ports(tmp_path / "other", choice)

    assert here.take() == choice[0]
    with pytest.raises(NoPortError):
        other.take()
    assert not list((tmp_path / "other").iterdir())
    here.release()
    last = Ports(tmp_path / "other", choice)
    assert last.take() == choice[0]
    last.release()


def test_no_port_is_one_that_the_system_lends_out() -> None:
    """An outgoing connection must not get a task's port between two of its runs."""
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()

    assert addresses.default_choice()[-1] < int(first)


def test_an_address_keeps_its_port(tmp_path: Path) -> None:
    """An address has one port for ever, however its name is spelled; what is no pod's name has none."""
    known = Addresses(Ports(tmp_path))
    name = "c-worker-0.c.ns.svc:2222"

    assert known.local(name) == known.local(name) == known.local("c-worker-0.c.ns.svc.cluster.local:2222")
    assert known.local("c-worker-1.c.ns.svc:2222") != known.local(name)
    assert known.local("example.com:443") == "example.com:443"


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("c-worker-0.c.ns.svc:2222", "127.0.0.1:PORT"),
        ("grpc://c-worker-0.c.ns.svc.cluster.local:2222/x", "grpc://127.0.0.1:PORT/x"),
        ('{"cluster": {"worker": ["c-worker-0.c:2222"]}}', '{"cluster": {"worker": ["127.0.0.1:PORT"]}}'),
        ("c-worker-0.c.ns:6006", "127.0.0.1:6006"),
        ("host=c-worker-0.c.ns.svc,", "host=127.0.0.1,"),
        ("c-worker-9.c.ns.svc:2222", "c-worker-9.c.ns.svc:2222"),
        ("my.c-worker-0.c.ns.svc:2222", "my.c-worker-0.c.ns.svc:2222"),
        ("c-worker-0.c.other.svc:2222", "c-worker-0.c.other.svc:2222"),
        ("c-worker-0.c.ns.svc:22222", "127.0.0.1:22222"),
        ("tcp://0.0.0.0:2222 localhost:22222", "tcp://0.0.0.0:PORT localhost:22222"),
        ("/data/x:/database:file:///data", "/here/x:/database:file:///here"),
        ("/a/data/x data/x ~/data", "/a/data/x data/x ~/data"),
        ("open('/data/in/y')", "open('/inner/y')"),
    ],
)
def test_names_and_paths_are_rewritten_where_they_stand_alone(tmp_path: Path, text: str, rewritten: str) -> None:
    """In any text; what only looks similar stays as it is."""
    known = Addresses(Ports(tmp_path))
    port = known.local_port("c-worker-0.c.ns.svc:2222")
    paths = PathMap([Mapping("/data", Path("/here")), Mapping("/data/in/", Path("/inner"))])
    rewriting = Rewriting(paths, known, hostname="c-worker-0", service="c", namespace="ns")

    assert rewriting.text(text) == rewritten.replace("PORT", str(port))
