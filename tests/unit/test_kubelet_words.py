"""The status that a real kubelet writes about a terminating pod, step by step, and its meaning.

The steps were recorded with a kubelet of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from in_memory import InMemoryWorld, running, timestamp

from tfcluster_operator.declaration import reasons
from tfcluster_operator.life.ending import Ending, ending_of
from tfcluster_operator.objects.kinds import KINDS

ASKED, FINISHED, GONE_BY = "2026-11-21T09:58:18Z", "2026-11-21T09:58:18Z", "2026-11-21T09:58:19Z"
EARLIER = "2026-11-21T09:58:10Z"


def pod(phase: str, code: int | None, finished: str | None = FINISHED, *, grace=None, told_of=0, **more: Any) -> Any:
    """Read a pod as the operator does.

    ``grace`` is its deletionGracePeriodSeconds, None while it is not deleted; ``told_of`` is the observedGeneration of
    its status, 0 on an old server; ``more`` are the states of other containers.
    """
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "finishedAt": finished}}
    states = {"task": state, **more}
    metadata = {"name": "c-worker-0", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1}
    if grace is not None:
        metadata |= {"deletionTimestamp": GONE_BY, "deletionGracePeriodSeconds": grace, "generation": 2}
    status = {
        "phase": phase,
        **({"observedGeneration": told_of} if told_of else {}),
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": EARLIER}],
        "containerStatuses": [{"name": name, "state": state} for name, state in states.items()],
    }
    spec = {"containers": [{"name": name, "image": "image:1"} for name in states]}
    return KINDS["Pod"].read(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status}))


@pytest.mark.parametrize("told_of", [0, 2])
@pytest.mark.parametrize("code", [0, 1, 143])
@pytest.mark.parametrize(
    ("phase", "ended", "grace"),
    [("Running", False, 1), ("Running", True, 1), ("Succeeded", True, 1), ("Succeeded", True, 0)],
)
def test_exit_caused_by_a_deletion_is_ignored(phase, ended, grace, code, told_of):
    assert ending_of(pod(phase, code=code if ended else None, grace=grace, told_of=told_of)) is None


@pytest.mark.parametrize(("phase", "grace"), [("Failed", 1), ("Failed", 0)])
def test_container_that_never_started_has_not_failed(phase, grace):
    assert ending_of(pod(phase, code=137, finished=None, grace=grace)) is None


@pytest.mark.parametrize(("code", "ending"), [(0, Ending.SUCCEEDED), (1, Ending.FAILED)])
def test_end_reported_before_the_kubelet_saw_the_deletion_counts(code, ending):
    assert ending_of(pod("Running", code=code, grace=1, told_of=1).seen(None, 100.0)) is ending


@pytest.mark.parametrize(("code", "ending"), [(0, Ending.SUCCEEDED), (1, Ending.FAILED)])
def test_end_that_we_saw_before_the_deletion_counts(code, ending):
    ended = pod("Running", code=code).seen(None, 100.0)
    leaving = pod("Running", code=code, grace=1).seen(ended, 101.0)
    gone = pod("Succeeded", code=143, grace=0).seen(leaving, 102.0)
    assert ending_of(leaving) is ending
    assert ending_of(gone) is Ending.FAILED


def test_time_of_an_end_proves_nothing():
    """By the node's clock, the program ended before the deletion; the clock can be wrong."""
    assert ending_of(pod("Running", code=1, finished=EARLIER, grace=1)) is None
    assert ending_of(pod("Running", code=1, finished=EARLIER, grace=1).seen(None, 100.0)) is None


@pytest.mark.parametrize(("code", "ending"), [(0, Ending.SUCCEEDED), (1, Ending.FAILED)])
def test_end_is_seen_before_the_phase(code, ending):
    assert ending_of(pod("Running", code=code)) is ending


def test_pod_is_at_rest_when_no_container_runs():
    assert pod("Running", code=0).at_rest
    assert pod("Succeeded", code=0).at_rest
    assert not pod("Running", code=None).at_rest
    assert not pod("Running", code=0, sidecar={"running": {}}).at_rest


def end_as_the_kubelet_does(world: InMemoryWorld, code: int) -> None:
    """End the container without a change of the phase."""
    ended = {"exitCode": code, "finishedAt": timestamp(world.now)}
    statuses = [{"name": "task", "state": {"terminated": ended}}]
    world.edit("Pod", "demo-worker-0", {"status": {"containerStatuses": statuses}})


def test_replacement_awaits_the_phase():
    cluster, world = running({"worker": 1}, failedPodsHistoryLimit=0)
    end_as_the_kubelet_does(world, 1)
    world.plan(cluster)
    world.now += 10.0
    assert world.plan(cluster).actions == ()
    world.edit("Pod", "demo-worker-0", {"status": {"phase": "Failed"}})
    (action,) = world.plan(cluster).actions
    assert action.reason == reasons.POD_FAILED


@pytest.mark.parametrize(("code", "kind"), [(0, "Succeeded"), (3, "Failed")])
def test_logs_of_the_task_that_ended_the_cluster_stay(code, kind):
    cluster, world = running({"worker": 1}, backoffLimit=0)
    end_as_the_kubelet_does(world, code)
    assert world.plan(cluster).actions == ()
    assert world.ledger.verdict.kind == kind
