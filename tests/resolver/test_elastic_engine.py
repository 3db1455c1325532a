"""The threads of elastic training, in a process short of threads or descriptors, with a fake TensorFlow."""

import importlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from resolver.resolver_world import Seen, view_of
from support.waiting import GUARD, eventually

from tfcluster_resolver import TFClusterResolver, elastic
from tfcluster_resolver.elastic import Following
from tfcluster_resolver.elastic.connections import Sockets
from tfcluster_resolver.elastic.plan import Change
from tfcluster_resolver.errors import ArgumentTypeError, TasksBusyError

#: The modules that load TensorFlow, or need a module that does.
LOADS = [f"tfcluster_resolver.{name}" for name in ("_tensorflow.workers", "elastic.engine")]


class OpError(Exception):
    pass


@pytest.fixture(scope="module")
def engine_module() -> Iterator[ModuleType]:
    """The engine, with a fake TensorFlow that must only exist."""
    private: Any = ModuleType("tfcluster_resolver._tensorflow.private")
    private.coordinator_module = SimpleNamespace(
        ResourceClosure=object, WorkerPreemptionHandler=object, errors=SimpleNamespace(OpError=OpError)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, private.__name__, private)
        yield importlib.import_module("tfcluster_resolver.elastic.engine")
    for name in LOADS:
        del sys.modules[name]


class Running:
    """The cluster of a coordinator: it records each update, or fails with the next of some errors."""

    def __init__(self) -> None:
        self.server_def = SimpleNamespace(job_name="chief", cluster=SimpleNamespace(job=[]))
        self.stopped, self.updates, self.told = False, 0, []
        self.errors: list[Exception] = []
        self._woken = threading.Event()

    def wait(self, seconds: float) -> bool:
        del seconds
        woken = self._woken.wait(0.01)
        self._woken.clear()
        return woken

    def wake(self) -> None:
        self._woken.set()

    def recovered(self, error: Exception | None = None) -> None:
        self.told += [error] if error is not None else []

    def update(self, wanted: object) -> None:
        del wanted
        if self.errors:
            raise self.errors.pop()
        self.updates += 1

    def can_try_again(self, error: Exception) -> bool:
        return not isinstance(error, OpError)

    def close(self) -> None:
        pass


@pytest.fixture
def engine(engine_module) -> Iterator[Any]:
    one = engine_module.ElasticEngine(Running())
    yield one
    one.stop()


@pytest.fixture
def starve(monkeypatch) -> Callable[..., list[str]]:
    """Fails the next starts of threads with this name; returns their names."""
    start, refused = threading.Thread.start, []

    def make(name: str, times: int) -> list[str]:
        def start_or_not(thread: threading.Thread) -> None:
            if thread.name == name and len(refused) < times:
                refused.append(name)
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_not)
        return refused

    return make


def test_engine_outlives_a_moment_without_threads(engine_module, engine, starve):
    """A change that failed for lack of a thread is applied when one is available, without an error."""
    refused = starve("tfcluster-guard", 2)
    request = engine_module.Request(engine.wanted, Change(2))
    engine.ask(request)
    engine._thread.start()

    assert request.done.wait(GUARD)
    assert (len(refused), engine.running.updates, engine.running.told) == (2, 1, [])


def test_engine_outlives_any_error_of_ours(engine_module, engine, monkeypatch):
    """At any time, also before the first change: otherwise no lost worker would come back."""
    answering, failures = engine.answering, [OSError("too many open files")] * 2

    def answer(tasks: object) -> object:
        if failures:
            raise failures.pop()
        return answering(tasks)

    monkeypatch.setattr(engine, "answering", answer)
    request = engine_module.Request(engine.wanted, Change(2))
    engine.ask(request)
    engine._thread.start()

    assert request.done.wait(GUARD)
    assert engine.running.updates == 1


@pytest.mark.parametrize(("error", "told", "updates"), [(OpError(), 1, 0), (RuntimeError(), 0, 1)])
def test_unrequested_update_error_is_retried_or_raised(engine, error, told, updates):
    """TensorFlow's own reaches the program, which ends if a ps was lost; any other is retried."""
    engine.running.errors = [error]
    engine.forget(("worker", 0))
    engine._thread.start()

    eventually(lambda: (len(engine.running.told), engine.running.updates), (told, updates).__eq__, what="it is settled")


def test_change_requested_while_tensorflow_is_busy_is_applied(engine_module, engine):
    """After a lost worker TensorFlow updates its cluster; a change requested in the meantime is applied."""
    busy, go_on, updates = threading.Event(), threading.Event(), []

    def update(wanted: object) -> None:
        updates.append(wanted)
        busy.set()
        assert go_on.wait(GUARD)

    engine.running.update = update
    engine.forget(("worker", 0))
    engine._thread.start()
    assert busy.wait(GUARD)
    request = engine_module.Request(SimpleNamespace(**vars(engine.wanted), changed=True), Change(2))
    engine.ask(request)
    go_on.set()

    assert request.done.wait(GUARD)
    assert [hasattr(one, "changed") for one in updates] == [False, True]


def test_applied_change_is_never_reverted(engine_module, engine):
    """A caller that gives up while the change is being applied must not get an error that nothing was changed."""
    request, taken_back = engine_module.Request(engine.wanted, Change(2)), []

    class Late(threading.Event):
        """Completed a moment after the caller has given up."""

        def set(self) -> None:
            taken_back.append(engine.withdraw(request))
            super().set()

    request.done = Late()
    engine.ask(request)
    engine._thread.start()

    assert request.done.wait(GUARD)
    assert taken_back == [False]


def test_connections_are_watched_after_a_moment_without_threads(starve, monkeypatch):
    looks: list[bool] = []
    monkeypatch.setattr(Sockets, "_look", lambda _: looks.append(True))
    starve("tfcluster-connections", 1)
    sockets = Sockets()
    with sockets.watched():
        assert not looks
        with sockets.watched():
            eventually(lambda: looks, what="the connections are looked at")


def test_connections_are_watched_on_without_descriptors(monkeypatch):
    looks: list[bool] = []

    def look(_: Sockets) -> None:
        looks.append(True)
        raise OSError("too many open files")

    monkeypatch.setattr(Sockets, "_look", look)
    with Sockets().watched():
        eventually(lambda: looks, lambda seen: len(seen) > 1, what="the connections are looked at again")


def test_change_that_waits_for_a_busy_worker_ends_with_a_newer_view(monkeypatch):
    """Otherwise a busy, leaving worker would block the new ones."""
    seen, waiting = Seen(), threading.Event()
    engine: Any = SimpleNamespace(resizing=threading.Lock(), sockets=Sockets(), running=Running())

    def follow_once(_: object, resolver: TFClusterResolver, *__: object, outdated: Callable[[], bool], **___: object):
        if resolver.epoch == 1:
            waiting.set()
            eventually(outdated, what="the change is outdated")
        return Change(resolver.epoch), ()

    monkeypatch.setitem(sys.modules, "tfcluster_resolver.elastic.change", SimpleNamespace(follow_once=follow_once))
    following = Following(engine, TFClusterResolver("chief", 0, source=seen), None)
    assert waiting.wait(GUARD)
    seen.show(["w0:1"], 2)

    assert following.wait_for_epoch(2, GUARD)
    following.close()


def test_change_is_applied_however_often_the_view_changes(monkeypatch):
    """Here at each read, while a change takes five seconds."""
    seen, now = Seen(), [0.0]
    epochs = itertools.count(1)

    def follow_once(_: object, resolver: TFClusterResolver, *__: object, outdated: Callable[[], bool], **___: object):
        for _ in range(10):
            now[0] += 0.5
            if outdated():
                raise TasksBusyError("a worker is busy")
        return Change(resolver.epoch), ()

    monkeypatch.setattr(seen, "view", lambda: view_of({"worker": ("w0:1",)}, epoch=next(epochs)))
    monkeypatch.setattr(elastic, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setitem(sys.modules, "tfcluster_resolver.elastic.change", SimpleNamespace(follow_once=follow_once))
    engine: Any = SimpleNamespace(resizing=threading.Lock(), sockets=Sockets(), running=Running())
    following = Following(engine, TFClusterResolver("chief", 0, source=seen), None)

    assert following.wait_for_epoch(1, GUARD)
    following.close()
    assert following.error is None


def test_arguments_are_checked():
    """Before TensorFlow is loaded."""
    resolver = TFClusterResolver.from_spec({"worker": ["a:1"]})
    for call, word in (
        (lambda: elastic.resize(None, {"worker": ["a:1"]}), "takes a TFClusterResolver"),
        (lambda: elastic.follow(None, {"worker": ["a:1"]}), "takes a TFClusterResolver"),
        (lambda: elastic.resize(None, resolver, timeout="5"), "timeout"),
        (lambda: elastic.follow(None, resolver, timeout=None), "timeout"),
    ):
        with pytest.raises(ArgumentTypeError, match=word):
            call()


def test_resize_with_a_snapshot_uses_the_cluster_as_it_is_now(monkeypatch):
    """The snapshot of the start would undo later changes."""
    seen = Seen()
    engine: Any = SimpleNamespace(resizing=threading.Lock(), sockets=Sockets(), running=Running())
    change: Any = SimpleNamespace(follow_once=lambda _, resolver, *__, **___: (Change(resolver.epoch), ()))
    monkeypatch.setitem(sys.modules, "tfcluster_resolver.elastic.change", change)
    monkeypatch.setattr(elastic, "_engine_of", lambda *_: engine)
    snapshot = TFClusterResolver("chief", 0, source=seen).snapshot()
    seen.show(["w0:1"], 2)

    assert elastic.resize(None, snapshot) == Change(2)
