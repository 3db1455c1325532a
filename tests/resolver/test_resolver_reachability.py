"""Whether tasks respond, with real sockets on loopback."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from resolver.resolver_world import SETTINGS, python, refusing_address, speaker
from support.waiting import GUARD, eventually

from tfcluster_resolver.elastic import connections
from tfcluster_resolver.errors import AddressError, Cause, MissingTask
from tfcluster_resolver.waiting import addresses, wait_for_tasks
from tfcluster_resolver.waiting import probes as waiting_probes
from tfcluster_resolver.waiting.addresses import host_and_port
from tfcluster_resolver.waiting.probes import Probes


@pytest.fixture
def listening(listen) -> str:
    return listen()


@pytest.fixture
def black_hole() -> Iterator[int]:
    """Return a port with a full queue on all IPv4 addresses of loopback: the kernel drops packets."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("0.0.0.0", 0), backlog=0))  # noqa: S104 - of 127/8
        port = server.getsockname()[1]
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


def silent_tasks(port: int, count: int) -> list[tuple[str, int, str]]:
    return [("worker", index, f"127.1.{index // 250}.{index % 250 + 1}:{port}") for index in range(count)]


def test_each_missing_task_has_its_cause(listening):
    refused = refusing_address()
    tasks = [("worker", 0, refused), ("worker", 1, listening), ("ps", 3, "no-such-host.invalid:1")]

    missing = wait_for_tasks(tasks, timeout=0)

    assert missing == (
        MissingTask("worker", 0, refused, Cause.REFUSED),
        MissingTask("ps", 3, "no-such-host.invalid:1", Cause.UNRESOLVED),
    )
    assert str(missing[0]).startswith(f"/job:worker/task:0 at {refused}: connection refused")
    assert wait_for_tasks([("worker", 0, listening), ("worker", 1, listening)], timeout=0) == ()
    assert wait_for_tasks([], timeout=0) == ()


def test_missing_pod_differs_from_an_unresolved_name(monkeypatch):
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


@pytest.mark.parametrize(("count", "bounds"), [(40, (1000, 41)), (400, (100, 50))])
def test_silent_tasks_hide_none_that_answers(black_hole, listening, monkeypatch, count, bounds):
    """The one that responds is found in the same attempt, with only the sockets that the process can spare."""
    descriptors, most = bounds
    monkeypatch.setattr("tfcluster_resolver.waiting.probes.descriptors", lambda _, part: descriptors // part)
    # On a busy machine, an attempt for all of them takes longer.
    monkeypatch.setattr("tfcluster_resolver.waiting.probes._LOOK_ONCE", GUARD)
    counts, real = [], Probes._connect

    def connect(probes, *arguments):
        real(probes, *arguments)
        counts.append(open_sockets())

    monkeypatch.setattr(Probes, "_connect", connect)
    before, silent = open_sockets(), silent_tasks(black_hole, count)

    missing = wait_for_tasks([*silent, ("ps", 0, listening)], timeout=0)

    assert [(one.job, one.index, one.address) for one in missing] == silent
    assert {one.cause for one in missing} == {Cause.TIMED_OUT}
    assert (max(counts), open_sockets()) == (before + most, before)


def test_process_without_free_descriptors_still_probes_all_tasks(listening):
    """Without a free descriptor, a task waits for the end of another one's attempt."""
    text = """
import resource, sys
from tfcluster_resolver.waiting import probes, wait_for_tasks
probes.descriptors = lambda most, part: most
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
tasks = [("w", i, f"127.2.0.{i + 1}:{sys.argv[1]}") for i in range(200)]
print(len(wait_for_tasks([*tasks, ("l", 0, sys.argv[2])], timeout=0)))
"""
    with socket.create_server(("0.0.0.0", 0), backlog=1024) as everywhere:  # noqa: S104 - of 127/8
        done = python("-c", text, str(everywhere.getsockname()[1]), listening)

    assert (done.stdout, done.stderr) == ("0\n", "")


def open_sockets() -> int:
    links = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return sum(link.startswith("socket:") for link in links)


def test_interpreter_ends_although_names_are_looked_up():
    """Endless look-ups, more of them than threads, delay neither the wait nor the process's end."""
    text = """
import socket, threading
from tfcluster_resolver.waiting import wait_for_tasks
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
missing = wait_for_tasks([("w", index, f"w{index}:1") for index in range(500)], timeout=0.5)
print(len(missing), {one.cause.name for one in missing}, threading.active_count() <= 65)
"""
    done = python("-S", "-c", text)

    assert (done.stdout, done.returncode) == ("500 {'UNRESOLVED'} True\n", 0), done.stderr


class LookUps(addresses._LookUps):
    """Look-ups in the calling thread, with a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, knows: bool = False) -> None:
        super().__init__()
        self.now, self.knows = 1000.0, knows
        self.asked: list[float] = []
        monkeypatch.setattr(addresses, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(socket, "getaddrinfo", self.resolve)

    def resolve(self, *_: object, **__: object) -> list[object]:
        self.asked.append(self.now)
        if self.knows:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0))]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def _start_thread(self) -> None:
        self._threads += 1

    def find(self, seconds: float) -> int:
        """Look up every 0.25 s for some time; return how often the name resolved."""
        found = 0
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            one = self.begin("w1")
            if one.addresses is None:
                self._work()
            found += bool(one.addresses)
            self.release(one)
        return found


def test_name_without_addresses_is_looked_up_less_and_less(monkeypatch):
    """A pod that is pending for an hour costs the DNS little; a new one is found at most five seconds later."""
    look_ups = LookUps(monkeypatch)
    assert not look_ups.find(3600)
    assert sum(when <= 1001 for when in look_ups.asked) >= 3
    assert len(look_ups.asked) < 3600 / 5 + 60
    look_ups.knows = True
    assert look_ups.find(10) > 20
    look_ups.knows, before = False, len(look_ups.asked)
    look_ups.find(1)
    assert len(look_ups.asked) - before >= 3


def test_name_is_looked_up_quickly_after_an_hour(monkeypatch):
    """A task that is removed by scaling and added an hour later does not wait for the old back-off."""
    look_ups = LookUps(monkeypatch)
    look_ups.find(60)
    look_ups.now += 3600
    before = len(look_ups.asked)
    look_ups.find(1)
    assert len(look_ups.asked) - before >= 3


def test_look_up_that_fails_in_python_leads_nowhere(monkeypatch):
    """Without descriptors Python cannot load the codec of names; the next look-up is independent."""
    look_ups = LookUps(monkeypatch)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: {}["idna"])
    assert not look_ups.find(1)
    assert not look_ups._unfinished


def test_forked_child_looks_names_up_again():
    text = """
import os, socket, threading
from tfcluster_resolver.waiting import addresses, wait_for_tasks
real = socket.getaddrinfo
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
stuck = [addresses.look_ups.begin(f"w{index}") for index in range(100)]
if (child := os.fork()) == 0:
    socket.getaddrinfo = lambda _, *a, **o: real("127.0.0.1", *a, **o)
    print([one.cause.name for one in wait_for_tasks([("w", 0, "w0:1")], timeout=0)], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = python("-c", text)

    assert done.stdout == "['REFUSED']\n", done.stderr


@pytest.fixture
def slow_names(monkeypatch) -> tuple[list[str], threading.Event]:
    """The names that are looked up, each of them 127.0.0.1, and an event that lets the look-ups end."""
    asked, go_on, real = [], threading.Event(), socket.getaddrinfo

    def look_up(host, *arguments, **options):
        asked.append(host)
        go_on.wait()
        return real("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    # A look-up of another test can occupy the process's threads for minutes.
    fresh = type(addresses.look_ups)()
    for module in (addresses, waiting_probes):
        monkeypatch.setattr(module, "look_ups", fresh)
    return asked, go_on


def test_name_is_looked_up_once_for_all_its_tasks(slow_names, listening):
    asked, go_on = slow_names
    port = listening.rpartition(":")[2]
    first = addresses.look_ups.begin("shared")
    with closing(Probes()) as probes:
        probes.want([("w", 0, f"shared:{port}"), ("ps", 0, f"shared:{port}"), ("w", 1, "shared:1")])
        probes.run(0.1)
        assert [one.cause for one in probes.missing()] == [Cause.UNRESOLVED] * 3
        go_on.set()
        probes.look_once()
        assert [(one.job, one.index) for one in probes.missing()] == [("w", 1)]
    assert first.addresses == ((socket.AF_INET, ("127.0.0.1",)),)
    assert asked == ["shared"]
    addresses.look_ups.release(first)


def test_look_up_that_is_not_waited_for_is_left_out(slow_names, monkeypatch):
    """A name whose caller has stopped is no longer looked up, unless the look-up has started."""
    asked, go_on = slow_names
    monkeypatch.setattr(addresses, "descriptors", lambda *_, **__: 1)
    held = addresses.look_ups.begin("held")
    with closing(Probes()) as probes:
        probes.want([("w", 0, "dropped:1")])
        probes.run(0.01)
    last = addresses.look_ups.begin("last")
    go_on.set()
    eventually(lambda: last.addresses is not None, what="the last look-up")
    assert asked == ["held", "last"]
    for one in (held, last):
        addresses.look_ups.release(one)


def test_any_address_of_a_name_will_do(monkeypatch):
    with socket.create_server(("127.0.0.5", 0)) as server:
        real = socket.getaddrinfo

        def look_up(_, *arguments, **options):
            return [one for to in ("127.0.0.7", "127.0.0.5") for one in real(to, *arguments, **options)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

        assert wait_for_tasks([("w", 0, f"two:{server.getsockname()[1]}")], timeout=0) == ()


def test_task_that_starts_late_is_waited_for():
    with closing(Probes()) as probes, socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        probes.want([("worker", 0, f"127.0.0.1:{late.getsockname()[1]}")])
        probes.look_once()
        assert [one.cause for one in probes.missing()] == [Cause.REFUSED]

        late.listen()
        probes.run(GUARD)
        assert probes.missing() == ()
        assert probes.reached() == {("worker", 0): late.getsockname()}


def test_probed_tasks_can_be_added_and_removed(black_hole, listening):
    gone, stays = silent_tasks(black_hole, 2)
    before = open_sockets()
    with closing(Probes()) as probes:
        probes.want([gone, stays])
        probes.run(0.2)
        assert open_sockets() == before + 2

        probes.want([stays, ("ps", 0, listening)])
        probes.look_once()

        assert [one.address for one in probes.missing()] == [stays[2]]
    assert open_sockets() == before


@pytest.mark.parametrize(
    ("words", "closes", "cause"),
    [
        (SETTINGS, False, None),
        (b"HTTP/1.1 400 Bad Request\r\n", False, Cause.NOT_GRPC),
        (b"", True, Cause.NOT_GRPC),
        (SETTINGS[:5], True, Cause.NOT_GRPC),
        (b"", False, Cause.NOT_GRPC),
    ],
    ids=["gRPC", "another protocol", "closes", "closes in the middle", "silent"],
)
def test_server_must_greet_as_grpc_does(words, closes, cause):
    """If gRPC is required, accepting a connection is not enough: the server must send HTTP/2 settings."""
    # A server that never sends them costs the whole time-out, so only one that does gets a long one.
    timeout = 0.5 if cause else GUARD
    with speaker(words, closes=closes) as address:
        tasks = [("worker", 0, address)]
        assert [one.cause for one in wait_for_tasks(tasks, timeout=timeout, grpc=True)] == ([cause] if cause else [])
        assert wait_for_tasks(tasks, timeout=0) == ()


def test_addresses_are_taken_apart():
    addresses = ["host:2222", "[::1]:1", "10.0.0.1:65535"]
    assert [host_and_port(one) for one in addresses] == [("host", 2222), ("::1", 1), ("10.0.0.1", 65535)]


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:65536", "grpc://host:1", "host:1_0"])
def test_invalid_address_is_rejected(address):
    """A text that is not host:port is rejected immediately, because TensorFlow would wait for it forever."""
    with pytest.raises(AddressError):
        wait_for_tasks([("worker", 0, address)], timeout=GUARD)


@pytest.mark.parametrize("host", ["a" * 70, "a\0b", "\ud800", "..", "a..b", "*", " "])
def test_name_that_cannot_be_does_not_resolve(host):
    """An invalid name counts as one that does not resolve, not as an error of Python's."""
    assert [one.cause for one in wait_for_tasks([("w", 0, f"{host}:1")], timeout=0)] == [Cause.UNRESOLVED]


def test_attempts_to_connect_to_others_are_left_alone(black_hole, monkeypatch):
    """An attempt to reach a task ends after two seconds; one to another service at the same port number does not."""
    now = [0.0]
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: now[0]))
    sockets = connections.Sockets()
    with closing(Probes()) as probes:
        probes.want(silent_tasks(black_hole, 1))
        probes.run(0)
        sockets.meet(probes.tried)
    with socket.socket() as task, socket.socket() as other:
        for one, host in ((task, "127.1.0.1"), (other, "127.0.0.9")):
            one.setblocking(False)
            one.connect_ex((host, black_hole))
        for now[0] in (0.0, 2.5):
            sockets._look()
        states = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] for one in (task, other)]
    assert [state == connections._TCP_SYN_SENT for state in states] == [False, True]
