"""Waiting for tasks from the view, as a program calls it: real sockets, real view files."""

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from resolver.resolver_world import be_task, publish, refusing_address, view_of
from support.waiting import GUARD

import tfcluster_resolver
from tfcluster_resolver import Task, TFClusterResolver, contract
from tfcluster_resolver.errors import (
    ArgumentError,
    MalformedViewError,
    NoSuchTaskError,
    SnapshotOutdatedError,
    TasksUnreachableError,
)
from tfcluster_resolver.waiting import Wanted, wait_for
from tfcluster_resolver.waiting.probes import Probes


class Cluster:
    """A mounted view that changes, and the resolver of its chief, which does not listen."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.epoch = folder, 0
        self.own = refusing_address()
        be_task(monkeypatch, "chief", 0, self.own, folder)

    def publish(self, **jobs: Sequence[str]) -> None:
        self.epoch += 1
        publish(self.folder, view_of({"chief": (self.own,), **jobs}, epoch=self.epoch))


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


class Waiting:
    """A wait in a thread; ``begun`` is set after the first attempt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wait: Callable[[], Any]) -> None:
        self.begun, real = threading.Event(), Probes.run

        def run(probes: Probes, seconds: float) -> None:
            real(probes, min(seconds, 0.05))
            self.begun.set()

        monkeypatch.setattr(Probes, "run", run)
        self._ended = ThreadPoolExecutor(1).submit(wait)
        assert self.begun.wait(GUARD)

    def end(self) -> Any:
        return self._ended.exception(GUARD) or self._ended.result()


def test_wait_counts_the_others(cluster, listen):
    cluster.publish(ps=[listen()], worker=[listen(), listen()])
    assert tfcluster_resolver.wait() == 3
    assert tfcluster_resolver.wait(TFClusterResolver(), timeout=math.inf) == 3
    assert tfcluster_resolver.wait(jobs=(job for job in ["worker"])) == 2
    assert tfcluster_resolver.wait(TFClusterResolver().snapshot(), jobs=("ps", "worker"), timeout=0) == 3
    with pytest.raises(NoSuchTaskError, match="no job 'evaluator' in the view of n/c, which shows chief, ps, worker"):
        tfcluster_resolver.wait(jobs=["evaluator"])


def test_wait_works_outside_a_pod(listen):
    jobs = {"chief": [refusing_address()], "worker": [listen()]}
    assert tfcluster_resolver.wait(TFClusterResolver.from_spec(jobs, "chief", 0), timeout=0) == 1
    with pytest.raises(TasksUnreachableError, match="1 of 2 other tasks of the given ClusterSpec did not answer"):
        tfcluster_resolver.wait(TFClusterResolver.from_spec(jobs), timeout=0)


class Shrinking:
    """A source whose cluster loses a task with each read, until only the chief is left."""

    interval = 0.05

    def __init__(self, workers: Sequence[str]) -> None:
        self.workers, self.epoch = list(workers), 0

    def view(self) -> contract.View:
        self.epoch += 1
        jobs = {"chief": (refusing_address(),), **({"worker": tuple(self.workers)} if self.workers else {})}
        del self.workers[-1:]
        return view_of(jobs, epoch=self.epoch)


def test_wait_of_a_live_resolver_is_never_outdated(monkeypatch):
    monkeypatch.setattr("tfcluster_resolver.waiting._LOOK", 0.01)
    resolver = TFClusterResolver("chief", 0, source=Shrinking([refusing_address() for _ in range(20)]))
    assert tfcluster_resolver.wait(resolver, timeout=GUARD) == 0


def test_wait_follows_a_resize(cluster, listen, monkeypatch):
    ps = listen()
    cluster.publish(ps=[ps], worker=[refusing_address(), refusing_address()])
    waiting = Waiting(monkeypatch, lambda: tfcluster_resolver.wait(timeout=GUARD))
    cluster.publish(ps=[ps, listen()])
    assert waiting.end() == 2


def test_task_that_comes_at_the_end_is_waited_for(cluster, listen, monkeypatch):
    worker, added = listen(), refusing_address()
    cluster.publish(worker=[worker])
    real = Probes.look_once

    def look_and_grow(probes: Probes) -> None:
        real(probes)
        cluster.publish(worker=[worker, added])

    monkeypatch.setattr(Probes, "look_once", look_and_grow)

    with pytest.raises(TasksUnreachableError, match=r"1 of 2 other tasks of n/c \(epoch 2\)") as raised:
        tfcluster_resolver.wait(timeout=0)
    (missing,) = raised.value.missing
    assert (missing.job, missing.index, missing.address, missing.cause.name) == ("worker", 1, added, "REFUSED")
    assert isinstance(raised.value, TimeoutError)


def test_snapshot_of_a_cluster_that_shrank_ends_the_wait(cluster, listen, monkeypatch):
    """If a snapshot's task is removed, the wait ends immediately, with an error that names it and the remedy."""
    ps, missing = listen(), refusing_address()
    cluster.publish(ps=[ps], worker=[missing])
    snapshot = TFClusterResolver().snapshot()
    waiting = Waiting(monkeypatch, lambda: tfcluster_resolver.wait(snapshot, timeout=GUARD))

    cluster.publish(ps=[ps])
    error = waiting.end()

    assert type(error) is SnapshotOutdatedError
    assert f"/job:worker/task:0 at {missing}: connection refused" in str(error)
    assert "Take a new snapshot() and try again" in str(error)
    assert tfcluster_resolver.wait(timeout=0) == 1


def test_snapshot_whose_tasks_all_answer_is_good(cluster, listen):
    """A removed task that still responds is good enough for a snapshot, as is a cluster that grew."""
    ps, worker = listen(), listen()
    cluster.publish(ps=[ps], worker=[worker])
    snapshot = TFClusterResolver().snapshot()
    cluster.publish(ps=[ps])
    assert tfcluster_resolver.wait(snapshot, timeout=0) == 2
    cluster.publish(ps=[ps], worker=[worker, refusing_address()])
    assert tfcluster_resolver.wait(snapshot, timeout=0) == 2


@pytest.mark.parametrize("stays", [False, True])
def test_view_that_is_broken_for_a_moment_is_read_again(cluster, listen, monkeypatch, stays):
    """An unreadable view ends the wait with its own error only if it stays unreadable, or is so at the start."""
    cluster.publish(ps=[refusing_address()])
    if stays:
        monkeypatch.setattr("tfcluster_resolver.waiting.GRACE", 0.2)
    waiting = Waiting(monkeypatch, lambda: tfcluster_resolver.wait(timeout=GUARD))
    publish(cluster.folder, "{")
    if stays:
        assert type(waiting.end()) is MalformedViewError
        with pytest.raises(MalformedViewError):
            tfcluster_resolver.wait()
    else:
        waiting.begun.clear()
        assert waiting.begun.wait(GUARD)
        cluster.publish(ps=[listen()])
        assert waiting.end() == 1


@pytest.mark.parametrize("timeout", [None, -1, -0.1, math.nan, -math.inf, "5", b"5", True, 1j, [], 10**400])
def test_time_out_is_a_number_of_seconds(timeout):
    with pytest.raises(ArgumentError, match="timeout") as raised:
        tfcluster_resolver.wait(timeout=timeout)
    assert isinstance(raised.value, (TypeError, ValueError))


NO_RESOLVERS = [{"resolver": "digits"}, {"resolver": {"worker": ["h:1"]}}]


@pytest.mark.parametrize("arguments", [*NO_RESOLVERS, *({"jobs": jobs} for jobs in ("ps", [0], None, 1))])
def test_other_arguments_are_checked(cluster, listen, arguments):
    cluster.publish(ps=[listen()])
    with pytest.raises(ArgumentError):
        tfcluster_resolver.wait(**arguments)


def test_message_stays_short():
    tasks = [Task("worker", index, f"no host {index}:1") for index in range(150)]
    with pytest.raises(TasksUnreachableError) as raised:
        wait_for(lambda: Wanted(tasks, "c"), timeout=0)
    assert len(raised.value.missing) == 150
    assert len(str(raised.value).splitlines()) == 102
    assert str(raised.value).endswith("  and 50 more")
