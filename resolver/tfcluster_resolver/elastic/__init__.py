"""Changing the size of a cluster under a running program.

It decides who may change it when: one call at a time.  Which changes can be followed is decided in
:mod:`tfcluster_resolver.elastic.plan`, and in which order one is made in :mod:`tfcluster_resolver.elastic.change`.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

from tfcluster_resolver._arguments import seconds
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.elastic.following import LONGEST, Following, follow
from tfcluster_resolver.elastic.plan import Change, Refusal
from tfcluster_resolver.errors import ArgumentTypeError, TasksBusyError
from tfcluster_resolver.resolver import TFClusterResolver

__all__ = ["Change", "Following", "Refusal", "follow", "resize"]


def resize(coordinator: Any, resolver: TFClusterResolver, *, timeout: float = 300.0) -> Change:
    """Make a running ClusterCoordinator use the tasks that its cluster has now.

    Variables, traced functions, queued closures and the iterators of the workers that stay are kept.  New workers take
    closures as soon as they listen; per-worker datasets, tables and variables are made on them too.  A worker that goes
    finishes the closure in hand first.  New variables are placed on new ps, too; a ps that holds variables stays.

    It may be called from any thread, while closures are queued or run; a second call waits for the first.  The first
    call has the coordinator handle lost workers our way: one that comes back takes closures again without waiting for
    the others.

    Args:
        coordinator: a ``tf.distribute.coordinator.ClusterCoordinator``.
        resolver: the cluster; what it says now counts.
        timeout: how long to wait for tasks that come to listen and for workers that go to finish, in seconds.

    Returns:
        What was changed, and what was refused and why.

    Raises:
        TasksUnreachableError: tasks did not answer in time.  Its text says whether anything was changed.
        TasksBusyError: a worker did not finish its closure in time, or another resize did not end; nothing was changed.
        RestartNeededError: only a restart of the coordinator can follow the change, or this TensorFlow cannot be
            resized; nothing was changed.
        ArgumentError: an argument is of another type, or the timeout is below 0 or no number.
        TensorFlowNotFoundError: TensorFlow is not installed.
        ViewError: the view is missing, unreadable, malformed or too new.
    """
    timeout = min(seconds(timeout, "timeout"), LONGEST)
    deadline = time.monotonic() + timeout
    if not isinstance(resolver, TFClusterResolver):
        raise ArgumentTypeError(f"resize() takes a TFClusterResolver, not {type(resolver).__name__}")
    tensorflow_api.load("resize()")
    # NB: loading it checks TensorFlow.
    change = importlib.import_module("tfcluster_resolver.elastic.change")
    engine = change.engine_of(coordinator, deadline)
    if not engine.resizing.acquire(timeout=timeout):
        raise TasksBusyError(f"another resize did not end within {timeout:g} s. This one changed nothing: try again")
    try:
        with engine.sockets.watched():
            made: Change = change.follow_once(engine, resolver, deadline, wait=True)[0]
            return made
    finally:
        engine.resizing.release()
