"""The effect of reconciles on metrics and log."""

import logging
import re

import pytest
from prometheus_client import generate_latest
from simulation.dialect import CLUSTER
from simulation.workloads import job
from support.async_tests import within
from support.gate import JOBS, STATUS, Gate, gated
from support.memory_kubernetes import Refusal
from support.metrics import Scrape

from tfcluster_operator.kube.metrics import Metrics

behind_a_gate = within(gated)


def measured(gate: Gate) -> Metrics:
    gate.world.operator.metrics = Metrics()
    return gate.world.operator.metrics


def grown(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return Scrape(generate_latest(metrics.registry).decode()).not_zero(name)


@behind_a_gate
async def test_end_is_counted_once_by_an_operator_that_takes_over(gate: Gate):
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
