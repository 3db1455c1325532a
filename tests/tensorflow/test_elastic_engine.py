"""The thread that changes TensorFlow's cluster, in moments that a running program meets seldom."""

from __future__ import annotations

import copy
import threading
from typing import Any

import tensorflow as tf
from loopback_cluster import DEADLINE

from tfcluster_resolver.elastic.engine import ElasticEngine, Request
from tfcluster_resolver.elastic.plan import Change


class Slow:
    """A coordinator whose cluster of one chief takes as long to change as the test likes."""

    stopped = False

    def __init__(self) -> None:
        self.server_def = tf.train.ServerDef(job_name="chief", task_index=0, protocol="grpc")
        self.server_def.cluster.job.add(name="chief").tasks[0] = "127.0.0.1:1"
        self.updating, self.go_on = threading.Event(), threading.Event()
        self._due = threading.Event()

    def take_over(self, _: ElasticEngine) -> bool:
        return True

    def wait(self, seconds: float) -> bool:
        happened = self._due.wait(seconds)
        self._due.clear()
        return happened

    def wake(self) -> None:
        self._due.set()

    def update(self, wanted: Any) -> None:
        self.updating.set()
        assert self.go_on.wait(DEADLINE)
        self.server_def = copy.deepcopy(wanted)

    def recovered(self, _: Exception | None = None) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is open."""


def test_change_that_is_asked_for_while_tensorflow_is_busy_is_made():
    """A lost worker has TensorFlow update its cluster; who asks for a change meanwhile is not forgotten."""
    running: Any = Slow()
    engine = ElasticEngine(running)
    assert engine.begin()
    try:
        engine.forget(("worker", 0))
        engine.running.wake()
        assert running.updating.wait(DEADLINE)

        wanted = copy.deepcopy(engine.wanted)
        wanted.cluster.job.add(name="other")
        request = Request(wanted, Change(1))
        engine.ask(request)
        running.go_on.set()

        assert request.done.wait(DEADLINE)
        assert [job.name for job in running.server_def.cluster.job] == ["chief", "other"]
    finally:
        running.go_on.set()
        engine.stop()


def test_change_that_was_made_is_never_taken_back():
    """Whoever gives up in the moment in which it is made does not hear that nothing was changed."""
    running: Any = Slow()
    running.go_on.set()
    engine = ElasticEngine(running)
    assert engine.begin()
    try:
        wanted = copy.deepcopy(engine.wanted)
        wanted.cluster.job.add(name="other")
        request = Request(wanted, Change(1))
        taken_back: list[bool] = []

        class Late(threading.Event):
            """Done a moment after somebody has given up."""

            def set(self) -> None:
                taken_back.append(engine.withdraw(request))
                super().set()

        request.done = Late()
        engine.ask(request)

        assert request.done.wait(DEADLINE)
        assert taken_back == [False]
    finally:
        engine.stop()
