"""Each oracle finds its bug: an intruder acts in the operator's name, as an operator with that bug would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from simulation import dialect, oracles, snapshot
from simulation.dialect import CLUSTER, NAMESPACE, OPERATOR
from simulation.plans import Line, Plan, Step, Write, read
from simulation.running import run
from simulation.world import World

from tfcluster_operator.report import tally

#: When the intruder acts, in seconds after the start: the cluster is ready, and the step is not yet complete.
_THEN = 2.0


def _at(seconds: float, act: Callable[[World], None]) -> Callable[[World], None]:
    return lambda world: asyncio.get_running_loop().call_later(seconds, act, world) and None


def _complaints(workload: str, act: Callable[[World], None], *, at: float = _THEN) -> list[str]:
    outcome = run(Plan(workload), intruder=_at(at, act))
    return oracles.judge(outcome, oracles.reference(workload))


def _oracles(complaints: list[str]) -> set[str]:
    return {one.split(":")[0] for one in complaints}


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


def test_a_clean_run_is_not_complained_of():
    outcome = run(Plan("scale"))

    assert oracles.judge(outcome, oracles.reference("scale")) == []


def test_a_pod_that_is_deleted_for_nothing_is_noticed():
    assert "deeds" in _oracles(_complaints("recreate", _delete_a_pod))


def test_a_deletion_of_what_is_not_ours_is_noticed():
    assert "invariant: configmaps theirs is not ours and is deleted" in _complaints("recreate", _delete_a_strangers)


def test_a_write_after_the_end_is_noticed():
    complaints = _complaints("scale", _write_late, at=40.0)

    assert any(one.startswith("late: patch services/c afterwards") for one in complaints)


def test_a_pod_before_its_view_and_two_pods_of_a_task_are_noticed():
    def act(world: World) -> None:
        pod = world.kube.get("pods", NAMESPACE, f"{CLUSTER}-worker-0")
        spec = {"containers": pod["spec"]["containers"], "volumes": [{"name": "v", "configMap": {"name": "none"}}]}
        metadata = {name: pod["metadata"][name] for name in ("labels", "annotations", "ownerReferences")}
        body = {"metadata": {"name": "second", **metadata}, "spec": spec}
        world.kube.create("pods", NAMESPACE, body, user=OPERATOR)

    complaints = _complaints("recreate", act)

    assert any("two live pods of ('worker', '0')" in one for one in complaints)
    assert any("second comes before none" in one for one in complaints)


def _has_another_tf_config(world: World) -> None:
    """Create a worker's pod as the operator would, with the TF_CONFIG from before the scaling."""
    worker = next(one for one in world.pods() if one["metadata"]["name"] == f"{CLUSTER}-worker-0")
    told = next(one for one in worker["spec"]["containers"][0]["env"] if one["name"] == "TF_CONFIG")
    told["value"] = told["value"].replace("worker-1", "worker-7")
    metadata = {name: worker["metadata"][name] for name in ("labels", "annotations", "ownerReferences")}
    body = {"metadata": {**metadata, "name": "second"}, "spec": worker["spec"]}
    world.kube.create("pods", NAMESPACE, body, user=OPERATOR)


def test_a_pod_with_another_tf_config_than_its_view_says_is_noticed():
    outcome = run(Plan("TF_CONFIG"), intruder=_at(_THEN, _has_another_tf_config))

    complaints = oracles.judge(outcome, oracles.reference("TF_CONFIG"))
    assert any("second has TF_CONFIG" in one and "worker-7" in one for one in complaints)


def test_a_status_that_is_untrue_for_long_is_noticed():
    history, moments = _history_of_a_lie(seconds=6.0)

    assert list(oracles.lies(history, moments, end=100.0, blind=None)) == [
        "c says that it is ready and c-worker-0 is not for 6.0 s"
    ]
    assert list(oracles.lies(history, moments, end=100.0, blind=(9.0, 12.0))) == []


def test_a_status_that_is_untrue_for_a_moment_is_not_complained_of():
    history, moments = _history_of_a_lie(seconds=4.0)

    assert list(oracles.lies(history, moments, end=100.0, blind=None)) == []


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


def test_every_difference_between_two_snapshots_is_named():
    wanted = {"a": {"b": 1, "c": 2}, "d": [1]}
    found = {"a": {"b": 1, "e": 3}, "d": [2]}

    assert list(snapshot.differences(wanted, found)) == [".a.c is missing", ".a.e is new: 3", ".d is [2], not [1]"]
    assert snapshot.changed(wanted, snapshot.change(wanted, found)) == found


@pytest.mark.parametrize(
    "plan",
    [
        Plan("scale"),
        Plan("scale", Write("create", "pods", "c-worker-0", 0, "after"), "crash"),
        Plan("scale", Line("pods", "ADDED", "c-worker-0", 0), "hold 5 s"),
        Plan("scale", Step(2), "API server away 10 s"),
    ],
    ids=str,
)
def test_a_plan_is_read_from_its_text(plan):
    assert read(str(plan)) == plan


def test_a_run_is_the_same_each_time():
    plan = Plan("on failure", Write("create", "pods", "c-worker-0", 0, "after"), "crash")
    first, second = run(plan), run(plan)

    assert (first.steps, first.writes, first.virtual) == (second.steps, second.writes, second.virtual)
    assert dialect.CLUSTER == CLUSTER
