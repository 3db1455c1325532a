"""Each oracle finds its bug: an intruder acts in the operator's name, as an operator with that bug would."""

from __future__ import annotations

import asyncio

import pytest
from simulation import oracles
from simulation.dialect import CLUSTER, NAMESPACE, OPERATOR
from simulation.plans import Plan
from simulation.running import run
from simulation.world import World

from tfcluster_operator.report import tally

#: When the intruder acts, in seconds after the start: the cluster is ready, and the step is not yet complete.
_THEN = 2.0


def _delete_a_pod(world: World) -> None:
    world.kube.delete("pods", NAMESPACE, f"{CLUSTER}-worker-0", user=OPERATOR)


def _write_late(world: World) -> None:
    asyncio.get_running_loop().create_task(_patch_by_request(world))


async def _patch_by_request(world: World) -> None:
    from support.memory_kubernetes import MemorySession

    session = MemorySession(world.kube, user=OPERATOR)
    url = f"http://memory/api/v1/namespaces/{NAMESPACE}/services/{CLUSTER}"
    async with session.request(
        "PATCH",
        url,
        data=b'{"metadata":{"annotations":{"a":"b"}}}',
        headers={"Content-Type": "application/merge-patch+json"},
    ):
        pass


def _delete_a_strangers(world: World) -> None:
    world.kube.create("configmaps", NAMESPACE, {"metadata": {"name": "theirs"}, "data": {}}, user="somebody")
    world.kube.delete("configmaps", NAMESPACE, "theirs", user=OPERATOR)


def _create_a_second(world: World) -> None:
    """Create another pod of a task, which mounts a ConfigMap that does not exist."""
    pod = world.kube.get("pods", NAMESPACE, f"{CLUSTER}-worker-0")
    spec = {"containers": pod["spec"]["containers"], "volumes": [{"name": "v", "configMap": {"name": "none"}}]}
    metadata = {name: pod["metadata"][name] for name in ("labels", "annotations", "ownerReferences")}
    world.kube.create("pods", NAMESPACE, {"metadata": {"name": "second", **metadata}, "spec": spec}, user=OPERATOR)


def _has_another_tf_config(world: World) -> None:
    """Create a worker's pod as the operator would, with the TF_CONFIG from before the scaling."""
    worker = next(one for one in world.pods() if one["metadata"]["name"] == f"{CLUSTER}-worker-0")
    told = next(one for one in worker["spec"]["containers"][0]["env"] if one["name"] == "TF_CONFIG")
    told["value"] = told["value"].replace("worker-1", "worker-7")
    metadata = {name: worker["metadata"][name] for name in ("labels", "annotations", "ownerReferences")}
    body = {"metadata": {**metadata, "name": "second"}, "spec": worker["spec"]}
    world.kube.create("pods", NAMESPACE, body, user=OPERATOR)


@pytest.mark.parametrize(
    ("workload", "act", "at", "complaints"),
    [
        ("recreate", _delete_a_pod, _THEN, ["deeds: "]),
        ("recreate", _delete_a_strangers, _THEN, ["invariant: configmaps theirs is not ours and is deleted"]),
        ("scale", _write_late, 40.0, ["late: patch services/c afterwards"]),
        ("recreate", _create_a_second, _THEN, ["two live pods of ('worker', '0')", "second comes before none"]),
        ("TF_CONFIG", _has_another_tf_config, _THEN, ["second has TF_CONFIG"]),
    ],
)
def test_each_oracle_finds_its_bug(workload, act, at, complaints):
    def intrude(world: World) -> None:
        asyncio.get_running_loop().call_later(at, act, world)

    said = oracles.judge(run(Plan(workload), intruder=intrude), oracles.reference(workload))

    assert [one for one in complaints if not any(one in found for found in said)] == []


def test_a_status_that_is_untrue_for_long_is_noticed():
    history, moments = _history_of_a_lie(seconds=6.0)

    assert list(oracles.lies(history, moments, end=100.0, blind=None)) == [
        "c says that it is ready and c-worker-0 is not for 6.0 s"
    ]
    assert list(oracles.lies(history, moments, end=100.0, blind=(9.0, 12.0))) == []
    assert list(oracles.lies(*_history_of_a_lie(seconds=4.0), end=100.0, blind=None)) == []


def _history_of_a_lie(seconds: float):
    """A worker is lost at 10 s, and the status reports it later."""
    from simulation.world import Moment

    def cluster(ready: str):
        status = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": ready, "reason": ""}]}
        metadata = {"name": "c", "namespace": "default", "uid": "u", "generation": 1}
        return {"metadata": metadata, "spec": {"jobs": {"worker": {"replicas": 1}}}, "status": status}

    pod = {
        "metadata": {"name": "c-worker-0", "namespace": "default", "uid": "p", "ownerReferences": [{"uid": "u"}]},
        "spec": {"hostname": "c-worker-0"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    history = [
        (1, "ADDED", "pods", pod),
        (2, "ADDED", "tfclusters", cluster("True")),
        (3, "DELETED", "pods", pod),
        (4, "MODIFIED", "tfclusters", cluster("False")),
    ]
    times = {1: 1.0, 2: 2.0, 3: 10.0, 4: 10.0 + seconds}
    return history, {revision: Moment(at, OPERATOR) for revision, at in times.items()}


def test_a_ledger_that_differs_from_the_model_is_noticed():
    from properties.reference_life import Life
    from simulation.truth import _differences

    cluster = {"metadata": {"name": "c"}, "spec": {"jobs": {"worker": {}}}, "status": {"restarts": 7, "jobs": {}}}

    assert list(_differences(cluster, Life())) == ["c: restarts is 7 where the model says 0"]


def test_metrics_that_differ_from_what_there_is_are_noticed(monkeypatch):
    counted = tally.tasks_of
    monkeypatch.setattr(tally, "tasks_of", lambda *known: {**counted(*known), ("chief", "ready"): 5})

    complaints = oracles.judge(run(Plan("scale")), oracles.reference("scale"))

    assert {one.split(" are ")[0] for one in complaints} == {"metrics: tasks", "metrics: ready tasks"}
