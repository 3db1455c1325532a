"""Tasks that start together meet at the leader's port, and go on with one epoch whatever each saw first."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support.waiting import GUARD, eventually

from local_kubernetes.ports import free_ports
from tfcluster_resolver import RestartOnResize, TFClusterResolver, contract
from tfcluster_resolver.elastic import meeting as meetings
from tfcluster_resolver.elastic.meeting import meet
from tfcluster_resolver.errors import PortTakenError, TasksUnreachableError


class Seen:
    """What one task sees, as the test says."""

    def __init__(self, workers: list[str], epoch: int) -> None:
        self.show(workers, epoch)
        self.looks = 0

    def show(self, workers: list[str], epoch: int) -> None:
        jobs = {"worker": tuple(workers)}
        self._view = contract.View("mnist", "ml", "u1", epoch, "grpc", jobs=jobs, device_filters={}, accelerators={})

    def view(self) -> contract.View:
        self.looks += 1
        return self._view

    def notice(self) -> None:
        return None


class Meeting:
    """Workers that meet, each in a thread with a view of its own."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self.seen: dict[int, Seen] = {}
        self.pool = ThreadPoolExecutor(count)

    def start(self, index: int, workers: int, epoch: int, timeout: float = GUARD) -> Future[TFClusterResolver]:
        """Have a worker come that sees so many workers at an epoch."""
        self.seen[index] = Seen(self.addresses[:workers], epoch)
        resolver = TFClusterResolver("worker", index, source=self.seen[index])
        return self.pool.submit(meet, resolver, timeout=timeout)

    def show(self, index: int, workers: int, epoch: int) -> None:
        """Show a worker another epoch."""
        self.seen[index].show(self.addresses[:workers], epoch)

    def await_looks(self, index: int) -> None:
        """Wait until a worker has looked at its view three times more: it waits, and nothing moves it."""
        before = self.seen[index].looks
        eventually(lambda: self.seen[index].looks, lambda looks: looks > before + 3, what=f"worker {index} waits")


@pytest.fixture
def meeting() -> Iterator[Callable[[int], Meeting]]:
    """Makes a meeting; its threads end with the test."""
    made: list[Meeting] = []

    def make(count: int) -> Meeting:
        made.append(Meeting(count))
        return made[-1]

    yield make
    for one in made:
        one.pool.shutdown(cancel_futures=True)


def epochs(*workers: Future[TFClusterResolver]) -> list[int]:
    return [worker.result(GUARD).membership().view.epoch for worker in workers]


def test_all_start_with_the_epoch_that_all_see(meeting):
    """Three workers meet, whichever comes first."""
    there = meeting(3)
    others = [there.start(index, 3, 7) for index in (2, 1)]
    there.await_looks(1)

    assert epochs(there.start(0, 3, 7), *others) == [7, 7, 7]


def test_worker_with_an_older_view_is_waited_for(meeting):
    """Two workers of three see the resize first: they wait for the third, which starts as they do."""
    there = meeting(3)
    started = [there.start(0, 3, 2), there.start(1, 2, 1), there.start(2, 3, 2)]
    there.await_looks(0)
    assert not any(one.done() for one in started)

    there.show(1, 3, 2)

    assert epochs(*started) == [2, 2, 2]


def test_leader_with_an_older_view_waits_for_its_own(meeting):
    """The leader sees the resize last; nobody starts with the size that it saw first."""
    there = meeting(3)
    started = [there.start(0, 2, 1), there.start(1, 3, 2), there.start(2, 3, 2)]
    there.await_looks(0)
    assert not any(one.done() for one in started)

    there.show(0, 3, 2)

    assert epochs(*started) == [2, 2, 2]


def test_resize_while_they_wait_is_followed(meeting):
    """Two workers wait for a third that never comes; the cluster shrinks, and they start without it."""
    there = meeting(3)
    started = [there.start(index, 3, 4) for index in (0, 1)]
    there.await_looks(0)

    for index in (0, 1):
        there.show(index, 2, 5)

    assert epochs(*started) == [5, 5]


def test_worker_that_is_scaled_away_waits_for_nobody(meeting):
    """A worker that is declared no more is told so at once, also while it waits."""
    there = meeting(3)
    waiting = there.start(2, 3, 1)
    there.await_looks(2)

    there.show(2, 2, 2)

    assert waiting.result(GUARD).membership().view.jobs["worker"] == tuple(there.addresses[:2])


def test_one_task_alone_starts(meeting):
    """A cluster of one worker has nobody to meet."""
    assert epochs(meeting(1).start(0, 1, 3)) == [3]


def test_old_process_of_the_leader_is_outlived(meeting):
    """A newcomer goes to the leader's port while the old process still has it, and waits for the new one."""
    there = meeting(2)
    host, port = there.addresses[0].split(":")
    greeted = threading.Event()
    with socket.create_server((host, int(port))) as old:
        newcomer = there.start(1, 2, 2)
        for _ in range(3):
            guest, _ = old.accept()
            with guest:
                guest.sendall(b"\0\0\6\4\0\0\0\0\0\0\5\0\0\x40\0")  # as a gRPC server greets
        greeted.set()
        assert not newcomer.done()

    assert epochs(newcomer, there.start(0, 2, 2)) == [2, 2]


def test_strangers_at_the_door_change_nothing(meeting):
    """Port scans, probes and other protocols at the leader's port are neither counted nor fatal."""
    there = meeting(2)
    leader = there.start(0, 2, 1)
    there.await_looks(0)
    host, port = there.addresses[0].split(":")
    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 2000, b"tfcluster-meeting u1/1 /job:worker/task:9\n"):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(words)
    there.await_looks(0)
    assert not leader.done()

    assert epochs(leader, there.start(1, 2, 1)) == [1, 1]


def test_worker_that_died_while_it_waited_is_not_counted(meeting):
    """A guest whose connection has ended is gone: the leader waits for its successor."""
    there = meeting(3)
    leader = there.start(0, 3, 1)
    there.await_looks(0)
    host, port = there.addresses[0].split(":")
    with socket.create_connection((host, int(port))) as dying:
        dying.sendall(b"tfcluster-meeting u1/1 /job:worker/task:1\n")
        there.await_looks(0)
    there.await_looks(0)
    third = there.start(2, 3, 1)
    there.await_looks(0)
    assert not leader.done()

    assert epochs(leader, third, there.start(1, 3, 1)) == [1, 1, 1]


def test_leader_names_who_did_not_come(meeting, monkeypatch):
    """At its time-out, which here passes when worker 1 is there, the leader says who is missing, and at which epoch."""
    there, ahead, listen = meeting(3), [0.0], meetings._Reception.listen

    def hear(reception: meetings._Reception) -> dict[socket.socket, str]:
        said = listen(reception)
        if any(line.endswith("/job:worker/task:1") for line in said.values()):
            ahead.append(1.1 * GUARD)
        return said

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[-1], sleep=time.sleep)
    monkeypatch.setattr(meetings, "time", clock)
    monkeypatch.setattr(meetings._Reception, "listen", hear)
    second = there.start(1, 3, 6, timeout=2 * GUARD)

    try:
        with pytest.raises(
            TasksUnreachableError, match=r"1 of 2 other tasks did not come.* epoch 6; .*:\n  /job:worker/task:2 at"
        ) as told:
            there.start(0, 3, 6).result(GUARD)
    finally:
        there.show(1, 1, 7)  # ends worker 1
    assert [task.index for task in told.value.missing] == [2]
    assert epochs(second) == [7]


def test_worker_that_waits_has_its_port_open_until_they_start(meeting):
    """Those who still train can tell that a newcomer is there; TensorFlow finds the port free afterwards."""
    there = meeting(2)
    waiting = there.start(1, 2, 1)
    host, port = there.addresses[1].split(":")
    there.await_looks(1)
    socket.create_connection((host, int(port)), GUARD).close()

    assert epochs(waiting, there.start(0, 2, 1)) == [1, 1]
    socket.create_server((host, int(port))).close()


class Tried(Seen):
    """What a task sees that tries its own port at each look."""

    def __init__(self, workers: list[str], epoch: int) -> None:
        super().__init__(workers, epoch)
        self.open: list[bool] = []
        self.host, port = workers[-1].split(":")
        self.port = int(port)

    def view(self) -> contract.View:
        with socket.socket() as one:
            one.settimeout(GUARD)
            self.open.append(one.connect_ex((self.host, self.port)) == 0)
        return super().view()


def test_port_of_a_worker_that_waits_stays_open_between_its_attempts(meeting):
    """However often it does not reach the leader, who looks never finds its port closed meanwhile."""
    there = meeting(2)
    there.seen[1] = seen = Tried(there.addresses, 1)
    resolver = TFClusterResolver("worker", 1, source=seen)
    seen.open.clear()
    waiting = there.pool.submit(meet, resolver, timeout=GUARD)
    there.await_looks(1)
    tried = list(seen.open)

    assert epochs(there.start(0, 2, 1)) == [1]
    assert waiting.result(GUARD) is not None
    assert (tried[0], set(tried[1:])) == (False, {True})


def test_snapshot_is_followed_from_now_on(meeting):
    """Who gives RestartOnResize a snapshot meets in the epoch of now, as with the resolver itself."""
    there = meeting(2)
    seen = Seen(there.addresses, 1)
    restart = RestartOnResize(TFClusterResolver("worker", 0, source=seen).snapshot())

    seen.show(there.addresses[:1], 2)

    assert restart.meet(GUARD).epoch == 2


def test_worker_names_the_leader_that_does_not_answer(meeting):
    """At its time-out, another worker says who leads, and where."""
    there = meeting(2)

    with pytest.raises(TasksUnreachableError, match=f"/job:worker/task:0 at {there.addresses[0]}, which leads"):
        there.start(1, 2, 1, timeout=0.3).result(GUARD)


def test_leader_whose_port_is_taken_says_so(meeting):
    """Where something else listens on the leader's port until the time-out, the port is named."""
    there = meeting(2)
    port = int(there.addresses[0].split(":")[1])
    with socket.create_server(("", port)), pytest.raises(PortTakenError, match=f"port {port}"):
        there.start(0, 2, 1, timeout=0.3).result(GUARD)
