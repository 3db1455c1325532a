"""Two operators on a node, one leads: if the leader ends during a rollout, its successor continues.

No action is lost or repeated; the time without a leader is printed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from live_world import POD_DEADLINE_SECONDS, LiveWorld
from operator_release import OperatorRelease
from support.waiting import eventually
from support.world import task_names
from task_programs import LISTEN, pod_template

pytestmark = [pytest.mark.exhaustive, pytest.mark.alone]

WORKERS = task_names("c", worker=3)


@pytest.fixture
def running(world: LiveWorld, operator_release: OperatorRelease) -> LiveWorld:
    """A running cluster of three workers that are replaced one after the other."""
    operator_release.await_available()
    assert operator_release.deployment()["spec"]["replicas"] > 1, "the release has no standby"
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    world.launch_listeners("c", {"worker": {"replicas": 3}}, updateStrategy=strategy)
    world.await_ready("c")
    return world


def change_leaders(
    world: LiveWorld, release: OperatorRelease, end_the_leader: Callable[[str], None]
) -> tuple[float, list[tuple[str, str]]]:
    """Edit the template, end the leader when the first pod is deleted, and wait for the end of the rollout.

    Returns: For how long, in seconds, no living operator held the Lease, and every pod that was deleted in the
    meantime, by name and UID.
    """
    first, since, old = release.leader(), world.pods_version(), world.uids()
    template = pod_template(world.image, LISTEN, env=[{"name": "EDITED", "value": "yes"}])
    world.edit("c", {"jobs": {"worker": {"template": template}}})
    eventually(world.uids, lambda now: now.get("c-worker-2") != old["c-worker-2"], what="the rollout has begun")
    end_the_leader(first.partition("_")[0])
    ended = time.monotonic()
    eventually(release.leader, lambda who: who not in {"", first}, what="another operator leads")
    away = time.monotonic() - ended
    world.await_condition("c", "UpToDate", status="True")
    eventually(
        world.uids,
        lambda now: now.keys() == old.keys() and not set(now.values()) & set(old.values()),
        what="every worker is another pod",
        within=POD_DEADLINE_SECONDS,
    )
    world.await_ready("c")
    gone = {(p["metadata"]["name"], p["metadata"]["uid"]) for p in world.pod_history(since, gone=WORKERS)}
    return away, sorted(gone - set(world.uids().items()))


def test_rollout_outlives_a_crash_of_the_leader(
    running: LiveWorld,
    operator_release: OperatorRelease,
    tell_figure: Callable[[str], None],
) -> None:
    """The leader crashes; after the lease's duration, a standby continues: each pod is replaced exactly once."""
    old = sorted(running.uids().items())

    def crash(pod: str) -> None:
        uid = operator_release.pods()[pod]["metadata"]["uid"]
        killed = 0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):  # others end in the meantime
                if uid in (process / "cgroup").read_text().replace("_", "-"):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed += 1
        assert killed, "the leader runs on another machine"

    away, gone = change_leaders(running, operator_release, crash)

    tell_figure(f"nobody led for {away:.1f} s after a crash")
    assert gone == old
    assert running.status("c")["jobs"]["worker"]["disruptions"] == 0
    operator_release.await_available()
