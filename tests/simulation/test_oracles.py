"""Oracles that no seeded bug of tests/mutants needs: an intruder acts as an operator with their bug would."""

import asyncio

import pytest
from simulation import oracles
from simulation.dialect import CLUSTER, NAMESPACE, OPERATOR
from simulation.plans import Plan
from simulation.running import run
from simulation.world import World

from tfcluster_operator.engine import assembly
from tfcluster_operator.report.status import tasks_of

#: When the intruder acts, in seconds after the start: the cluster is ready, and the step is not yet complete.
_THEN = 2.0


def _delete_a_strangers(world: World) -> None:
    world.kube.create("configmaps", NAMESPACE, {"metadata": {"name": "theirs"}, "data": {}}, user="somebody")
    world.kube.delete("configmaps", NAMESPACE, "theirs", user=OPERATOR)


def _create_a_second(world: World) -> None:
    """Create another pod of a task."""
    pod = world.kube.get("pods", NAMESPACE, f"{CLUSTER}-worker-0")
    metadata = {name: pod["metadata"][name] for name in ("labels", "annotations", "ownerReferences")}
    body = {"metadata": {"name": "second", **metadata}, "spec": pod["spec"]}
    world.kube.create("pods", NAMESPACE, body, user=OPERATOR)


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (_delete_a_strangers, "invariant: configmaps theirs is not ours and is deleted"),
        (_create_a_second, "two live pods of ('worker', '0')"),
    ],
)
def test_oracle_finds_its_bug(act, complaint):
    def intrude(world: World) -> None:
        asyncio.get_running_loop().call_later(_THEN, act, world)

    said = oracles.judge(run(Plan("recreate"), intruder=intrude), oracles.reference("recreate"))
    assert any(complaint in found for found in said)


def test_a_ledger_that_differs_from_the_model_is_noticed():
    from decisions.reference_life import Life
    from simulation.truth import _differences

    cluster = {"metadata": {"name": "c"}, "spec": {"jobs": {"worker": {}}}, "status": {"restarts": 7, "jobs": {}}}

    assert list(_differences(cluster, Life())) == ["c: restarts is 7 where the model says 0"]


def test_metrics_that_differ_from_what_there_is_are_noticed(monkeypatch):
    counted = tasks_of
    monkeypatch.setattr(assembly, "tasks_of", lambda status: {**counted(status), ("chief", "ready"): 5})

    complaints = oracles.judge(run(Plan("scale")), oracles.reference("scale"))

    assert {one.split(" are ")[0] for one in complaints} == {"metrics: ready tasks"}
