"""Elastic training: which changes a running program can follow, and how tasks that start together meet."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from resolver.resolver_world import Seen
from support.waiting import GUARD, eventually

from local_kubernetes.ports import free_ports
from tfcluster_resolver import RestartOnResize, TFClusterResolver
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.cluster import Task
from tfcluster_resolver.elastic import meeting as meetings
from tfcluster_resolver.elastic.meeting import meet
from tfcluster_resolver.elastic.plan import Change, Jobs, Known, changed, joined, only, plan
from tfcluster_resolver.errors import PortTakenError, RestartNeededError, TasksUnreachableError


def workers(*indices: int) -> dict[int, str]:
    return {index: f"w{index}:1" for index in indices}


def servers(*indices: int) -> dict[int, str]:
    return {index: f"p{index}:1" for index in indices}


def worker(index: int, address: str = "") -> Task:
    return Task("worker", index, address or f"w{index}:1")


def ps(index: int, address: str = "") -> Task:
    return Task("ps", index, address or f"p{index}:1")


JOBS = {"ps": servers(0), "worker": workers(0, 1)}
CHIEF = {"chief": {0: "c:1"}}
MOVED = {"worker": {0: "w0:1", 1: "x:1"}, "ps": {0: "y:1"}}


def known(count: int = 1, **other) -> Known:
    return Known({**JOBS, "ps": servers(*range(count))}, "chief", "c:1", **other)


def held(**names: Sequence[str]) -> dict[str, object]:
    return {"held": lambda index: names.get(f"p{index}", [])}


def planned(jobs: Jobs, now: Known | None = None, pods: dict[tuple[str, int], str] | None = None) -> Change:
    return plan(now or known(), {**CHIEF, **JOBS, **jobs}, pods or {}, epoch=7)


@pytest.mark.parametrize(
    ("wanted", "now", "followed", "refused"),
    [
        ({}, known(), {}, []),
        ({"worker": workers(0, 1, 2)}, known(), {"added": (worker(2),)}, []),
        ({"worker": workers(*range(8))}, known(), {"added": tuple(map(worker, range(2, 8)))}, []),
        ({"worker": workers(0)}, known(), {"removed": (worker(1),)}, []),
        ({"worker": {}}, known(), {"removed": (worker(1),)}, [(0, "needs one of them")]),
        ({"ps": {}}, known(), {}, [(0, "needs one of them")]),
        ({"worker": workers(0, 1, 2, 4)}, known(), {"added": (worker(2),)}, [(4, "index 3 is missing")]),
        (
            {"worker": workers(*range(5))},
            known(filtered={("worker", index) for index in (0, 1, 2, 4)}),
            {"added": (worker(2),)},
            [(3, "no device filters"), (4, "no device filters")],
        ),
        ({"worker": workers(0, 1, 2)}, known(filtered={("ps", 0)}), {"added": (worker(2),)}, []),
        (
            {"ps": servers(0)},
            known(4, **held(p2=["variable w:0", "variable b:0"])),
            {"removed": (ps(3),)},
            [(1, "/job:ps/task:2 above it stays"), (2, "variable w:0, variable b:0")],
        ),
        ({"ps": servers(0)}, known(2, **held(p1=[f"v{n}" for n in range(12)])), {}, [(1, "v9 and 2 more")]),
        (MOVED, known(), {"replaced": (worker(1, "x:1"), ps(0, "y:1"))}, []),
        (
            MOVED,
            known(**held(p0=["variable w:0"])),
            {"replaced": (worker(1, "x:1"),)},
            [(0, "variable w:0 lived there: restore a checkpoint")],
        ),
    ],
)
def test_what_is_followed(wanted, now, followed, refused):
    """Tasks are added and removed at the top, without a gap, and one of each job stays.

    A task is added only if it has device filters when others of its job have some. A ps that holds variables stays, and
    so does each below it; the error names what would be lost. A task with another address is replaced.
    """
    change = planned(wanted, now)
    assert change == Change(7, refused=change.refused, **followed)
    assert [one.task.index for one in change.refused] == [index for index, _ in refused]
    assert all(words in str(one) for one, (_, words) in zip(change.refused, refused, strict=True))
    assert bool(change) == bool(followed)


def test_own_job_need_not_be_shown():
    assert plan(known(), JOBS, {}, epoch=7) == Change(7)


def test_another_pod_replaces():
    """A task with another pod at the same address is replaced; without that information it is not."""
    before = known(incarnations={("worker", 0): "a", ("worker", 1): "b"})
    assert planned({}, before, {("worker", 0): "a", ("worker", 1): "c"}).replaced == (worker(1),)
    assert planned({}, known(), {("worker", 1): "c"}).replaced == (worker(1),)
    assert not planned({}, before).replaced


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({**CHIEF, **JOBS, "evaluators": {0: "e:1"}}, "evaluators, ps, worker in place of ps, worker"),
        ({**CHIEF, "worker": workers(0, 1)}, "worker in place of ps, worker"),
        ({**JOBS, "chief": {0: "d:1"}}, "was c:1 and is now d:1"),
    ],
)
def test_only_a_restart_follows(wanted: Jobs, words: str):
    with pytest.raises(RestartNeededError, match=words):
        plan(known(), wanted, {}, epoch=7)


@pytest.mark.parametrize(
    ("ready", "added", "replaced"),
    [((2, 3), (2, 3), ()), ((2,), (2,), ()), ((3,), (), ()), ((1, 3), (), (1,)), ((), (), ())],
)
def test_only_those_that_are_ready(ready, added, replaced):
    """Of new workers, those without a gap below them; of replaced ones, each independently."""
    change = Change(7, added=(worker(2), worker(3)), removed=(ps(1),), replaced=(worker(1),))
    part = only(change, set(map(worker, ready)))
    assert part == Change(7, tuple(map(worker, added)), change.removed, tuple(map(worker, replaced)))


def test_changed_jobs():
    change = Change(7, added=(ps(1),), removed=(worker(1),), replaced=(worker(0, "x:1"),))
    assert changed(JOBS, change) == {"ps": servers(0, 1), "worker": {0: "x:1"}}
    assert JOBS["worker"][0] == "w0:1"


def test_two_changes_are_joined():
    """The earlier change comes first; the later plan decides what is rejected."""
    first = Change(7, added=(worker(2),), refused=planned({"worker": {}}).refused)
    second = Change(8, removed=(worker(2),), replaced=(ps(0, "p:2"),))
    assert joined(first, second) == Change(8, first.added, second.removed, second.replaced)


# tasks that start together meet at the leader's port, and continue with one epoch


class Meeting:
    """Workers that meet, each in a thread with its own view."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self.seen: dict[int, Seen] = {}
        self.pool = ThreadPoolExecutor(count)

    def address(self, index: int) -> tuple[str, int]:
        host, port = self.addresses[index].split(":")
        return host, int(port)

    def start(self, index: int, workers: int, epoch: int, timeout: float = GUARD) -> Future[TFClusterResolver]:
        """Start a worker whose view has this number of workers at an epoch."""
        self.seen[index] = Seen(self.addresses[:workers], epoch)
        resolver = TFClusterResolver("worker", index, source=self.seen[index])
        return self.pool.submit(meet, resolver, timeout=timeout)

    def show(self, index: int, workers: int, epoch: int) -> None:
        self.seen[index].show(self.addresses[:workers], epoch)

    def await_looks(self, index: int) -> None:
        """Wait until a worker has read its view three more times: it waits without progress."""
        before = self.seen[index].looks
        eventually(lambda: self.seen[index].looks, lambda looks: looks > before + 3, what=f"worker {index} waits")


@pytest.fixture
def meeting() -> Iterator[Callable[[int], Meeting]]:
    """Creates a meeting; its threads end with the test."""
    made: list[Meeting] = []
    yield lambda count: made.append(Meeting(count)) or made[-1]
    for one in made:
        one.pool.shutdown(cancel_futures=True)


def epochs(*workers: Future[TFClusterResolver]) -> list[int]:
    return [worker.result(GUARD).membership().view.epoch for worker in workers]


@pytest.mark.parametrize(
    ("seen", "later", "epoch"),
    [
        ([(3, 7), (3, 7), (3, 7)], {}, 7),
        ([(1, 3)], {}, 3),
        ([(3, 2), (2, 1), (3, 2)], {1: (3, 2)}, 2),
        ([(2, 1), (3, 2), (3, 2)], {0: (3, 2)}, 2),
        ([(3, 4), (3, 4)], {0: (2, 5), 1: (2, 5)}, 5),
    ],
    ids=["at once", "a lone worker", "a worker sees it last", "the leader sees it last", "the third never comes"],
)
def test_all_start_with_the_epoch_that_all_see(meeting, seen, later, epoch):
    """They wait until all see the same number of workers at the same epoch, and until all of those are present."""
    there = meeting(3)
    started = [there.start(index, *view) for index, view in enumerate(seen)]
    if later:
        there.await_looks(0)
        assert not any(one.done() for one in started)
    for index, view in later.items():
        there.show(index, *view)

    assert epochs(*started) == [epoch] * len(seen)


def test_worker_that_is_scaled_away_does_not_wait(meeting):
    there = meeting(3)
    waiting = there.start(2, 3, 1)
    there.await_looks(2)
    there.show(2, 2, 2)
    assert waiting.result(GUARD).membership().view.jobs["worker"] == tuple(there.addresses[:2])


def test_worker_that_moves_opens_its_new_port(meeting):
    there = meeting(3)
    moved = there.addresses.pop()
    waiting = there.start(1, 2, 1)
    there.await_looks(1)
    there.addresses[1] = moved
    there.show(1, 2, 2)
    there.await_looks(1)
    socket.create_connection(there.address(1), GUARD).close()
    assert epochs(waiting, there.start(0, 2, 2)) == [2, 2]


def test_leader_tries_again_to_open_its_port(meeting, monkeypatch):
    """The port of its old process can be in use for a moment; it retries with a delay."""
    there = meeting(2)
    newcomers: list[Future[TFClusterResolver]] = []

    def sleep(seconds: float) -> None:
        if old.fileno() >= 0:
            old.close()
            newcomers.append(there.start(1, 2, 1))
        time.sleep(seconds)

    monkeypatch.setattr(meetings, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    with socket.create_server(("", there.address(0)[1])) as old:
        assert epochs(there.start(0, 2, 1)) == [1]
    assert epochs(*newcomers) == [1]


def test_old_process_of_the_leader_is_outlived(meeting):
    """A new worker connects to the leader's port while the old process still has it, and waits for the new one."""
    there = meeting(2)
    with socket.create_server(there.address(0)) as old:
        newcomer = there.start(1, 2, 2)
        for _ in range(3):
            guest, _ = old.accept()
            with guest:
                guest.sendall(b"\0\0\6\4\0\0\0\0\0\0\5\0\0\x40\0")  # the greeting of a gRPC server
        assert not newcomer.done()

    assert epochs(newcomer, there.start(0, 2, 2)) == [2, 2]


def test_strangers_and_the_dead_at_the_door_are_not_counted(meeting):
    """Port scans, probes and other protocols are ignored; a worker that died is removed, its successor awaited."""
    there = meeting(3)
    leader = there.start(0, 3, 1)
    there.await_looks(0)
    greetings = [f"tfcluster-meeting u/1 /job:worker/task:{index}\n".encode() for index in (9, 1)]
    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 2000, *greetings):
        with socket.create_connection(there.address(0)) as stranger:
            stranger.sendall(words)
            there.await_looks(0)
    third = there.start(2, 3, 1)
    there.await_looks(0)
    assert not leader.done()

    assert epochs(leader, third, there.start(1, 3, 1)) == [1, 1, 1]


def test_leader_names_who_did_not_come(meeting, monkeypatch):
    there, ahead, listen = meeting(3), [0.0], meetings._Door.listen

    def hear(door: meetings._Door, seconds: float) -> dict[socket.socket, str]:
        heard = listen(door, seconds)
        if any(line.endswith("/job:worker/task:1") for line in heard.values()):
            ahead.append(1.1 * GUARD)
        return heard

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[-1], sleep=time.sleep)
    monkeypatch.setattr(meetings, "time", clock)
    monkeypatch.setattr(meetings._Door, "listen", hear)
    second = there.start(1, 3, 6, timeout=2 * GUARD)

    try:
        with pytest.raises(
            TasksUnreachableError, match=r"1 of 2 other tasks did not come.* epoch 6; .*:\n  /job:worker/task:2 at"
        ) as raised:
            there.start(0, 3, 6).result(GUARD)
    finally:
        there.show(1, 1, 7)  # ends worker 1
    assert [task.index for task in raised.value.missing] == [2]
    assert epochs(second) == [7]


def test_port_of_a_worker_that_waits_is_open_until_they_start(meeting):
    """Others see the new worker, even if it cannot reach the leader; when TensorFlow starts, the port is free."""
    there = meeting(2)
    there.seen[1] = seen = Seen(there.addresses, 1)
    resolver = TFClusterResolver("worker", 1, source=seen)
    opened: list[bool] = []

    def try_port() -> None:
        with socket.socket() as one:
            one.settimeout(GUARD)
            opened.append(one.connect_ex(there.address(1)) == 0)

    seen.on_look = try_port
    waiting = there.pool.submit(meet, resolver, timeout=GUARD)
    there.await_looks(1)
    tried = list(opened)

    assert epochs(waiting, there.start(0, 2, 1)) == [1, 1]
    assert (tried[0], set(tried[1:])) == (False, {True})
    socket.create_server(there.address(1)).close()


def test_snapshot_is_followed_from_now_on(meeting):
    there = meeting(2)
    seen = Seen(there.addresses, 1)
    restart = RestartOnResize(TFClusterResolver("worker", 0, source=seen).snapshot())
    seen.show(there.addresses[:1], 2)
    assert restart.meet(GUARD).epoch == 2


def test_what_keeps_them_from_starting_is_named(meeting):
    there = meeting(2)
    with pytest.raises(TasksUnreachableError, match=f"/job:worker/task:0 at {there.addresses[0]}, which leads"):
        there.start(1, 2, 1, timeout=0.3).result(GUARD)
    port = there.address(0)[1]
    with socket.create_server(("", port)), pytest.raises(PortTakenError, match=f"port {port}"):
        there.start(0, 2, 1, timeout=0.3).result(GUARD)


@pytest.mark.parametrize(
    ("index", "now", "restarts"),
    [
        (0, ((0, 1), ()), False),
        (0, ((0, 1, 2), ()), False),
        (0, ((0, 1, 2), (2,)), True),
        (0, ((0, 1, 2, 3), (2,)), False),
        (1, ((0, 1, 2), (2,)), False),
        (1, ((0,), ()), True),
    ],
    ids=["unchanged", "pending", "it listens", "one of two listens", "the first one checks for all", "scaled away"],
)
def test_pending_worker_does_not_block_training(meeting, monkeypatch, index, now, restarts):
    """While a new worker's pod is pending, training continues; it restarts when all new workers listen."""
    (workers, listens), there, asked = now, meeting(4), []
    seen = Seen(there.addresses[:2], 1)
    restart = RestartOnResize(TFClusterResolver("worker", index, source=seen))
    seen.show([there.addresses[one] for one in workers], 2)
    monkeypatch.setattr(RestartOnResize, "_any", lambda _, __, *, yes: asked.append(yes))
    with contextlib.ExitStack() as opened:
        for one in listens:
            opened.enter_context(socket.create_server(there.address(one)))
        restart.check(None)
    assert asked == [restarts]


def test_worker_that_is_the_last_to_leave_restarts_too(monkeypatch):
    """All have saved when one of them leaves, but its message to another can still fail."""

    class OpError(Exception):
        pass

    asked: list[bool] = []
    started: list[object] = []

    def ask_all(_: RestartOnResize, __: object, *, yes: bool) -> bool:
        asked.append(yes)
        if len(asked) > 1:
            raise OpError
        return True

    tensorflow = SimpleNamespace(errors=SimpleNamespace(OpError=OpError))
    monkeypatch.setattr(tensorflow_api, "load", lambda _: tensorflow)
    monkeypatch.setattr(RestartOnResize, "_any", ask_all)
    monkeypatch.setattr(os, "execv", lambda *words: started.append(words))
    restart = RestartOnResize(TFClusterResolver("worker", 0, source=Seen(["a:1"], 1)))

    restart.check(None, save=lambda: started.append("saved"))

    assert started == ["saved", (sys.executable, sys.orig_argv)]
    assert asked == [False, False]
