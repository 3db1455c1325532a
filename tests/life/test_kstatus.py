"""The status of a TFCluster in Flux, Argo CD and other users of kstatus: done, failed, or in progress.

The verdict comes from the Go module of kstatus (tests/support/kstatus). The clusters are on a real API server with the
real operator; a status is written by hand only if a cluster cannot reach it in the test.
"""

from typing import Any

import pytest
from support.kstatus_verdicts import judge
from support.manifests import tfcluster
from support.objects import TFCLUSTERS, Object, Objects
from support.waiting import eventually
from support.world import World

ELSEWHERE = "example.com/nobody"
TIME = "2026-01-01T00:00:00Z"


def condition(kind: str, status: str, reason: str) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"why it is {status}",
        "observedGeneration": 1,
        "lastTransitionTime": TIME,
    }


def cluster(*conditions: Object, generation: int = 1, **metadata: Any) -> Object:
    """Build a TFCluster whose first generation the operator has observed."""
    return {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "metadata": {"name": "c", "namespace": "n", "generation": generation, **metadata},
        "spec": {},
        "status": {"observedGeneration": 1, "conditions": list(conditions)},
    }


def verdict(found: Object) -> str:
    (only,) = judge(found)
    return only.status


def await_verdict(world: World, name: str, wanted: str) -> None:
    eventually(lambda: verdict(world.cluster(name)), lambda found: found == wanted, what=f"{name} is {wanted}")


READY = condition("Ready", "True", "AllTasksReady")
GOING = condition("Stalled", "False", "NotStalled")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param(cluster(READY, GOING), "Current", id="all tasks are ready"),
        pytest.param(cluster(condition("Ready", "True", "Succeeded"), GOING), "Current", id="it has succeeded"),
        pytest.param(
            cluster(condition("Ready", "False", "TasksNotReady"), GOING), "InProgress", id="a task is missing"
        ),
        pytest.param(cluster(condition("Ready", "False", "BackingOff"), GOING), "InProgress", id="a restart is due"),
        pytest.param(cluster(condition("Ready", "False", "Suspended"), GOING), "InProgress", id="it is suspended"),
        pytest.param(cluster(READY, GOING, generation=2), "InProgress", id="an edit is not observed yet"),
        pytest.param(
            cluster(condition("Ready", "False", "TaskFailed"), condition("Stalled", "True", "TaskFailed")),
            "Failed",
            id="it has failed",
        ),
        pytest.param(
            cluster(condition("Ready", "False", "InvalidSpec"), condition("Stalled", "True", "InvalidSpec")),
            "Failed",
            id="its spec is invalid",
        ),
        pytest.param(
            cluster(
                condition("Ready", "False", "InvalidSpec"), condition("Stalled", "True", "InvalidSpec"), generation=2
            ),
            "InProgress",
            id="its spec was invalid, and a correction is not observed yet",
        ),
        pytest.param(cluster(READY, GOING, deletionTimestamp=TIME), "Terminating", id="it is being deleted"),
    ],
)
def test_conditions_and_what_they_mean_to_kstatus(found: Object, wanted: str) -> None:
    """The meanings in docs/reference/conditions.md agree with kstatus."""
    assert verdict(found) == wanted


def test_new_cluster_is_in_progress_before_any_operator_has_seen_it(objects: Objects, namespace: str) -> None:
    """A pipeline that applies a TFCluster and waits must not consider it done before the operator observes it."""
    manifest = tfcluster("c").job("worker").spec(managedBy=ELSEWHERE).build()

    created = objects.create(TFCLUSTERS, namespace, manifest)
    stored = objects.get(TFCLUSTERS, namespace, "c") or {}

    assert [found.status for found in judge(created, stored)] == ["InProgress", "InProgress"]


@pytest.mark.usefixtures("operator")
def test_training_is_in_progress_then_current_and_current_when_it_has_succeeded(world: World, kubelet) -> None:
    world.launch("c", {"chief": {}, "worker": {"replicas": 2}})
    world.await_settled("c")
    assert verdict(world.cluster("c")) == "InProgress"

    kubelet.run("c-chief-0", "c-worker-0", "c-worker-1")
    await_verdict(world, "c", "Current")

    kubelet.succeed("c-chief-0")
    world.await_ended("c", "Succeeded")
    assert verdict(world.cluster("c")) == "Current"
