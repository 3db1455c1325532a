"""The effect of reconciles on metrics and log."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from prometheus_client import generate_latest
from simulation.dialect import CLUSTER, NAMESPACE
from simulation.workloads import job
from support.async_tests import within
from support.gate import JOBS, STATUS, Gate, gated
from support.memory_kubernetes import Refusal
from support.metrics import Scrape

from tfcluster_operator.kube.metrics import Figures, Metrics

behind_a_gate = within(gated)
DELIVERY = "tfcluster_view_delivery_seconds"


def figures(gate: Gate) -> Figures:
    assert gate.world.operator.engine is not None
    return gate.world.operator.engine.figures()


def measured(gate: Gate) -> Metrics:
    gate.world.operator.metrics = Metrics()
    return gate.world.operator.metrics


def grown(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return Scrape(generate_latest(metrics.registry).decode()).not_zero(name)


@pytest.mark.parametrize("change", ["being deleted", "invalid", "of another controller"])
@behind_a_gate
async def test_tasks_that_are_not_looked_after_are_not_counted(gate: Gate, change):
    spec: dict[str, Any] = {"managedBy": "example.test/other"} if change == "of another controller" else {}
    if not spec:
        await gate.come_up()
        assert figures(gate).tasks == {("chief", "ready"): 1, ("ps", "ready"): 1, ("worker", "ready"): 2}
    if change == "being deleted":
        keep = {"metadata": {"finalizers": ["example.com/keep"]}}
        gate.world.kube.patch("tfclusters", NAMESPACE, CLUSTER, keep, user="user")
        gate.world.remove("tfclusters", CLUSTER)
    elif change == "invalid":
        gate.world.edit({"jobs": {"worker": {"replicas": "two"}}})
    else:
        gate.declare(**spec)
    await gate.world.await_silence(5.0)
    after = figures(gate)
    assert after.tasks == {}
    assert sum(after.conditions["Ready", status] for status in ("True", "False")) == (0 if spec else 1)


@behind_a_gate
async def test_delivery_lasts_from_the_edit_until_the_last_pod_is_notified(gate: Gate):
    """After an edit, its view is rejected for a while, then delivered: both are one delivery."""
    metrics = measured(gate)
    await gate.world.operator.restart()
    await gate.come_up()
    assert grown(metrics, f"{DELIVERY}_count") == {}
    gate.reject(Refusal(403, "Forbidden", "no"), f"patch pods {CLUSTER}")
    gate.world.edit({"jobs": {"worker": {"replicas": 3}}})
    await gate.world.await_silence(20.0)
    assert figures(gate).undelivered_oldest >= 15
    gate.allow()
    await gate.world.await_silence(60.0)
    assert figures(gate).undelivered_oldest == 0
    assert grown(metrics, f"{DELIVERY}_count") == {(): 1}
    assert 20 <= grown(metrics, f"{DELIVERY}_sum")[()] <= 60


@behind_a_gate
async def test_epochs_and_the_end_are_counted_once_by_an_operator_that_takes_over(gate: Gate):
    first = measured(gate)
    await gate.world.operator.restart()
    await gate.come_up()
    gate.world.edit({"jobs": {"worker": {"replicas": 3}}})
    await gate.world.await_silence(10.0)
    gate.world.nodes.exit(f"{CLUSTER}-chief-0", 0)
    await gate.world.await_silence(10.0)
    gate.world.edit({"backoffLimit": 3})  # the status is written again
    await gate.world.await_silence(10.0)
    then = measured(gate)
    await gate.world.operator.restart()
    await gate.world.await_silence(10.0)
    assert [grown(one, "tfcluster_epochs_total") for one in (first, then)] == [{(): 2}, {}]
    ended = [grown(one, "tfcluster_clusters_finished_total") for one in (first, then)]
    assert ended == [{("TasksSucceeded",): 1}, {}]


@behind_a_gate
async def test_permanent_rejection_is_logged_once(gate: Gate, caplog):
    """A permanent rejection is one warning; another one is logged, and one after an edit; no warning quotes a value."""
    refusal = Refusal(422, "Invalid", 'env: Invalid value: "SECRET"')
    caplog.set_level(logging.WARNING)
    await gate.come_up({**JOBS, "worker": job(0)})
    gate.reject(refusal, f"create pods {CLUSTER}-worker", STATUS)
    gate.world.edit({"jobs": {"worker": {"replicas": 2}}})
    await gate.world.await_silence(90.0)
    gate.reject(refusal, f"create pods {CLUSTER}-worker", f"create pods {CLUSTER}-ps", STATUS)
    gate.lose("ps-0")
    await gate.world.await_silence(90.0)
    gate.world.edit({"backoffLimit": 3})
    await gate.world.await_silence(90.0)
    lines = [record.getMessage() for record in caplog.records]
    assert [words for words in lines if words.startswith("the status")] == [
        'the status cannot be written: 422 Invalid: env: Invalid value: "…"'
    ]
    first, second, *edited = re.findall(rf"Rejected: Pod {CLUSTER}-([a-z]+)", " ".join(lines))
    assert (first, second, sorted(edited)) == ("worker", "ps", ["ps", "worker"])
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize("limit", [0, 1], ids=["no failed pod is kept", "one failed pod is kept"])
@behind_a_gate
async def test_pods_that_restart_together_are_counted_once_each(gate: Gate, limit):
    """The failed pod is one of them, whether it is deleted or kept for its log."""
    metrics = measured(gate)
    await gate.world.operator.restart()
    await gate.come_up({"worker": job(3, restartScope="Job")}, failedPodsHistoryLimit=limit)
    gate.world.nodes.exit(f"{CLUSTER}-worker-1", 1)
    await gate.world.await_silence(60.0)
    assert len(gate.pods()) == 3 + limit
    assert grown(metrics, "tfcluster_pod_replacements_total") == {("RestartedTogether",): 3}
