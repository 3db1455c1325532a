"""Rejected writes: what waits for them, what continues, how often they are tried, and what is reported."""

from collections import Counter

import pytest
from simulation.dialect import CLUSTER, NAMESPACE
from simulation.workloads import RECREATE, job
from support.async_tests import within
from support.gate import QUOTA, STATUS, WEBHOOK, Gate, gated
from support.memory_kubernetes import Refusal

behind_a_gate = within(gated)
OTHERS = {"chief-0", "ps-0"}
INVALID = Refusal(422, "Invalid", "spec.containers[0].image: Required value")


@pytest.mark.parametrize(
    ("refused", "pods"),
    [
        (f"create configmaps {CLUSTER}-worker", OTHERS),
        (f"create services {CLUSTER}", set()),
        (f"create pods {CLUSTER}-worker", OTHERS),
        ("create", set()),
    ],
)
@pytest.mark.parametrize(
    ("refusal", "reason"),
    [(QUOTA, "Rejected"), (INVALID, "Rejected"), (WEBHOOK, "RequestFailed"), (Refusal(503, "B", "b"), "RequestFailed")],
)
@behind_a_gate
async def test_rejected_object_blocks_only_the_pods_that_need_it(gate: Gate, refused, pods, refusal, reason):
    gate.reject(refusal, refused)
    gate.declare()
    await gate.world.await_silence(20.0)
    assert gate.pods().keys() == pods
    assert gate.ready() == ("False", reason)
    assert refusal.message in gate.condition("Ready")["message"]
    assert gate.world.cluster()["status"]["observedGeneration"] == 1


@pytest.mark.parametrize("refusal", [QUOTA, WEBHOOK])
@behind_a_gate
async def test_deletions_continue_though_other_writes_are_rejected(gate: Gate, refusal):
    await gate.come_up({"chief": job(1), "worker": job(4)})
    gate.reject(refusal, "create", "patch pods", "patch configmaps")
    gate.world.edit({"jobs": {"worker": {"replicas": 1}, "ps": job(2)}})
    await gate.world.await_silence(20.0)
    assert gate.pods().keys() == {"chief-0", "worker-0"}


@pytest.mark.parametrize(
    ("answer", "replaced"),
    [
        (QUOTA, True),
        (Refusal(400, "BadRequest", 'admission webhook "policy" does not support dry run'), True),
        (Refusal(409, "AlreadyExists", 'pods "c-worker-0" already exists'), True),
        (INVALID, False),
        (Refusal(403, "Forbidden", 'violates PodSecurity "restricted:latest"'), False),
        (WEBHOOK, False),
    ],
    ids=["quota", "no dry run", "name taken", "invalid", "pod security", "webhook is down"],
)
@behind_a_gate
async def test_running_pods_go_only_for_a_template_that_the_server_takes(gate: Gate, answer, replaced):
    """A full quota, an unavailable webhook and a name that exists are not errors of the template."""
    await gate.come_up({"worker": job(1)}, updateStrategy=RECREATE)
    before = gate.pods()
    gate.reject(answer, "dry run of")
    gate.world.edit({"jobs": {"worker": job(1, "image:2")}})
    await gate.world.await_silence(20.0)
    assert gate.written("dry run of")[0] == f"dry run of create pods {CLUSTER}-worker-0"
    assert (gate.pods() != before) is replaced
    assert (gate.condition("UpToDate")["status"] == "True") is replaced


@behind_a_gate
async def test_rejected_creations_cost_few_requests_and_finally_succeed(gate: Gate):
    """After a rejection one request is tried first, then two, then four: thousands that succeed are not much slower."""
    gate.reject(QUOTA, "create pods")
    gate.declare({"worker": job(20)})
    await gate.world.await_silence(100.0)
    tries = len(gate.written("create pods"))
    gate.allow()
    allowed_at = gate.world.elapsed()
    await gate.world.await_silence(60.0)
    creations = [one.at for one in gate.writes if one.at >= allowed_at and one.brief.startswith("create pods")]
    assert 20 < tries <= 30  # all at the first time, and one at each later time
    assert list(Counter(creations).values()) == [1, 2, 4, 8, 5]
    assert gate.ready()[0] == "True"


@pytest.mark.parametrize("plural", ["pods", "configmaps"])
@behind_a_gate
async def test_taken_name_is_not_tried_again_until_it_is_free(gate: Gate, plural):
    """The API server counts each pod that it does not create, because the name exists, in the namespace's quota."""
    name = {"pods": f"{CLUSTER}-worker-0", "configmaps": f"{CLUSTER}-worker"}[plural]
    theirs = {"metadata": {"name": name}, "spec": {"containers": [{"name": "theirs", "image": "i"}]}}
    gate.world.kube.create(plural, NAMESPACE, theirs)
    gate.declare({"worker": job(3)})
    await gate.world.await_silence(60.0)
    assert gate.ready() == ("False", "NameTaken")
    if plural == "pods":
        assert {"worker-1", "worker-2"} <= gate.pods().keys()
    assert gate.written(f"create {plural} {name}") == [f"create {plural} {name}"]
    gate.world.kube.delete(plural, NAMESPACE, name, grace=0, user="user")
    await gate.world.await_silence(20.0)
    assert gate.ready()[0] == "True"


@behind_a_gate
async def test_edit_resets_the_back_off(gate: Gate):
    gate.reject(QUOTA, "create pods")
    gate.declare()
    await gate.world.await_silence(45.0)
    gate.allow()
    gate.world.edit({"backoffLimit": 3})
    await gate.world.await_silence(1.0)
    assert gate.pods().keys() == {*OTHERS, "worker-0", "worker-1"}


@behind_a_gate
async def test_pod_is_created_strictly_and_under_our_name(gate: Gate):
    """Unknown fields are rejected by name, and the pod's managed fields name the operator."""
    await gate.come_up({"worker": job(1)})
    (created,) = [one for one in gate.writes if one.brief.startswith("create pods")]
    assert created.params == {"fieldManager": "tfcluster-operator", "fieldValidation": "Strict"}


@pytest.mark.parametrize("limit", [0, 1], ids=["it is deleted", "it is kept for its log"])
@behind_a_gate
async def test_failure_that_cannot_be_recorded_keeps_its_pod_unchanged(gate: Gate, limit):
    """While the status is rejected, the pod is not replaced; then the count is written first."""
    await gate.come_up(failedPodsHistoryLimit=limit)
    failed_at = gate.world.elapsed()
    gate.reject(QUOTA, STATUS)
    gate.world.nodes.exit(f"{CLUSTER}-worker-0", 1)
    await gate.world.await_silence(30.0)
    its_pod = (f"patch pods {CLUSTER}-worker-0", f"delete pods {CLUSTER}-worker-0")
    assert gate.written(*its_pod, "create pods", since=failed_at) == []
    gate.allow()
    allowed_at = gate.world.elapsed()
    await gate.world.await_silence(90.0)
    first, *rest = gate.written(STATUS, *its_pod, since=allowed_at)
    assert (first, any(one.startswith(its_pod) for one in rest)) == (STATUS, True)
    assert gate.world.cluster()["status"]["jobs"]["worker"]["restarts"] == 1


@behind_a_gate
async def test_lost_pod_is_replaced_while_the_status_is_rejected(gate: Gate):
    """No evidence is lost with it; one event says that the status cannot be written, for any duration."""
    await gate.come_up()
    gate.reject(QUOTA, STATUS)
    gate.lose("worker-1")
    await gate.world.await_silence(30.0)
    assert "worker-1" in gate.pods()
    events = gate.world.kube.list("events", NAMESPACE)
    told = [(one["type"], one["reason"]) for one in events if "status of the TFCluster" in one["message"]]
    assert told == [("Warning", "Rejected")]


# --- the first status of a new cluster


@behind_a_gate
async def test_cluster_that_is_ready_within_a_second_is_reported_once(gate: Gate):
    """One status says that it is ready, and one event after it which objects were created."""
    await gate.come_up()
    assert gate.written(STATUS, "create events") == [STATUS, *gate.written("create events")]
    assert [one["reason"] for one in gate.world.kube.list("events", NAMESPACE)] == ["Created"]


@behind_a_gate
async def test_cluster_that_stays_pending_is_reported_a_second_after_its_objects(gate: Gate):
    gate.world.nodes.hurried = False
    gate.world.nodes.never_ready |= {f"{CLUSTER}-{task}" for task in (*OTHERS, "worker-0", "worker-1")}
    began = gate.world.elapsed()
    gate.declare()
    await gate.world.await_silence(10.0)
    assert [round(one.at - began) for one in gate.writes if one.brief == STATUS] == [1]
    assert gate.ready() == ("False", "TasksNotReady")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"suspend": True}, "Suspended"),
        ({"isolation": {"mode": "Nobody"}}, "InvalidSpec"),
        ({"jobs": {"ps": job(1), "worker": job(1, startAfter=["ps"])}}, "WaitingForJob"),
        ({}, "Rejected"),
    ],
)
@behind_a_gate
async def test_state_that_needs_attention_is_reported_immediately(gate: Gate, spec, reason):
    """A rejection, a wait with a reason, and any other state that does not lead to ready pods."""
    gate.world.nodes.hurried = False
    gate.reject(QUOTA, "create pods") if reason == "Rejected" else None
    gate.declare(**spec)
    await gate.world.await_silence(0.2)
    assert gate.ready() == ("False", reason)
