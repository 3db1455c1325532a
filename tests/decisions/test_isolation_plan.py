"""Isolation in the plan, the spec and the status: which NetworkPolicies exist, when, and what waits for them."""

from typing import Any

import pytest
from decisions.in_memory import LEAVING, OTHERS, InMemoryWorld, creates, make_cluster, running, settled

from tfcluster_operator.declaration import reasons
from tfcluster_operator.objects.network_policy import policies_of
from tfcluster_operator.plan.actions import Delete
from tfcluster_operator.report.status import status_of

CLUSTER = {"mode": "Cluster"}
FILTERS = {"mode": "DeviceFilters"}
FILTERED: dict[str, Any] = {
    "chief": {},
    "ps": {"deviceFilters": ["/job:worker", "/job:chief"]},
    "worker": {"replicas": 2, "deviceFilters": ["/job:ps", "/job:chief"]},
}


def selector(job: str = "", *among: str) -> dict[str, Any]:
    """Build the selector of a cluster's pods, of a job's, or of those of some jobs."""
    labels = {"tfcluster.dev/cluster": "demo", **({"tfcluster.dev/job": job} if job else {})}
    chosen = [{"key": "tfcluster.dev/job", "operator": "In", "values": list(among)}] if among else []
    return {"matchLabels": labels, **({"matchExpressions": chosen} if chosen else {})}


def specs(jobs: Any = None, isolation: Any = FILTERS) -> dict[str, dict[str, Any]]:
    return {one.name: one.spec for one in policies_of(make_cluster(jobs, isolation=isolation))}


def peers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [one["podSelector"] for one in spec["ingress"][0]["from"]]


REST = [{"protocol": "UDP"}, {"protocol": "SCTP"}]
UP_TO, BEYOND = ({"protocol": "TCP", "port": first, "endPort": last} for first, last in ((1, 2221), (2223, 65535)))
OTHER_PORTS = {"ports": [UP_TO, BEYOND, *REST]}
TASK_PORT = [{"protocol": "TCP", "port": 2222}]


# --- the policies


def test_jobs_with_ports_of_their_own_have_policies_of_their_own():
    """A policy closes one port."""
    found = specs({"chief": {}, "worker": {"port": 1}}, CLUSTER)
    chosen = {name: spec["podSelector"] for name, spec in found.items()}
    assert chosen == {"demo.chief": selector("chief"), "demo.worker": selector("worker")}
    assert found["demo.worker"]["ingress"] == [
        {"from": [{"podSelector": selector()}], "ports": [{"protocol": "TCP", "port": 1}]},
        {"ports": [{"protocol": "TCP", "port": 2, "endPort": 65535}, *REST]},
    ]


def test_no_selector_names_more_tasks_than_a_network_can_take():
    apart = {str(index): ["/job:ps/task:0"] for index in range(250)}
    jobs = {
        "ps": {"replicas": 2, "deviceFilters": ["/job:ps"]},
        "worker": {"replicas": 300, "deviceFilters": ["/job:ps/task:1"], "taskDeviceFilters": apart},
    }
    policies = specs(jobs)

    def values(selector: dict[str, Any]) -> list[int]:
        return [len(one["values"]) for one in selector.get("matchExpressions", ()) if "task-index" in one["key"]]

    counts = {name: values(spec["podSelector"]) for name, spec in policies.items()}
    turns = {"demo.worker.0": [100], "demo.worker.100": [100], "demo.worker.200": [50]}
    of_ps = {"demo.ps": [2], "demo.ps.0": [1], "demo.ps.1": [1]}
    assert counts == {**of_ps, "demo.worker": [100, 100, 50], **turns}
    assert [values(one) for one in peers(policies["demo.ps.0"])] == [[], [100], [100], [50]]


def test_peers_are_spelled_as_the_server_stores_them():
    nets = {"cidr": "10.0.0.0/8"}
    guests = [
        {"podSelector": {"matchLabels": {}, "matchExpressions": None}, "ipBlock": None},
        {"ipBlock": {**nets, "except": []}},
    ]
    spec = specs(None, {**CLUSTER, "allowFrom": guests})["demo"]
    assert spec["ingress"][0]["from"][1:] == [{"podSelector": {}}, {"ipBlock": nets}]


def policy_of_somebody_else(selector: dict[str, Any], *types: str) -> dict[str, Any]:
    return {"metadata": {"name": "theirs"}, "spec": {"podSelector": selector, "policyTypes": list(types)}}


def test_other_ports_are_left_to_the_policy_that_selects_the_pods_already():
    """Policies are additive: a rule that opens the other ports would cancel a user's default-deny."""
    cluster, world = make_cluster(isolation=CLUSTER), InMemoryWorld()
    world.create("NetworkPolicy", policy_of_somebody_else({}, "Ingress"))
    world.settle(cluster)
    assert world.objects["NetworkPolicy", "demo"]["spec"]["ingress"] == [
        {"from": [{"podSelector": selector()}], "ports": TASK_PORT}
    ]
    world.delete("NetworkPolicy", "theirs")
    world.settle(cluster)
    assert world.objects["NetworkPolicy", "demo"]["spec"]["ingress"][1:] == [OTHER_PORTS]


def where(key: str, operator: str, *values: str) -> dict[str, Any]:
    given = {"values": list(values)} if values else {}
    return {"matchExpressions": [{"key": key, "operator": operator, **given}]}


JOB = "tfcluster.dev/job"


@pytest.mark.parametrize(
    ("selected", "types", "governs"),
    [
        ({}, ["Ingress", "Egress"], True),
        ({}, ["Egress"], False),
        ({"matchLabels": {"app": "web"}}, ["Ingress"], False),
        ({"matchLabels": {JOB: "worker", "tfcluster.dev/task-index": "1"}}, ["Ingress"], True),
        (where("tfcluster.dev/cluster", "Exists"), ["Ingress"], True),
        (where(JOB, "In", "ps"), ["Ingress"], False),
        (where(JOB, "NotIn", "ps"), ["Ingress"], True),
        (where(JOB, "DoesNotExist"), ["Ingress"], False),
        (where("app", "Exists"), ["Ingress"], False),
    ],
)
def test_policy_governs_the_jobs_whose_pods_it_selects(selected, types, governs):
    cluster, world = make_cluster({"worker": 2}, isolation=CLUSTER), InMemoryWorld()
    world.create("NetworkPolicy", policy_of_somebody_else(selected, *types))
    world.settle(cluster)
    assert (OTHER_PORTS not in world.objects["NetworkPolicy", "demo"]["spec"]["ingress"]) == governs


def test_jobs_that_are_governed_elsewhere_have_policies_of_their_own():
    cluster, world = make_cluster(isolation=CLUSTER), InMemoryWorld()
    world.create("NetworkPolicy", policy_of_somebody_else({"matchLabels": {"tfcluster.dev/job": "chief"}}, "Ingress"))
    world.settle(cluster)
    assert len(world.objects["NetworkPolicy", "demo.chief"]["spec"]["ingress"]) == 1
    assert len(world.objects["NetworkPolicy", "demo.worker"]["spec"]["ingress"]) == 2


def test_guests_have_a_policy_of_their_own_where_there_are_several():
    """A list of peers can be long, and the policies many: the list is stored once."""
    guests = [{"podSelector": {"matchLabels": {"app": "notebook"}}}]
    jobs = {**FILTERED, "ps": {**FILTERED["ps"], "port": 3000}}
    policies = specs(jobs, {**FILTERS, "allowFrom": guests})
    ports = [*TASK_PORT, {"protocol": "TCP", "port": 3000}]
    ingress = [{"from": guests, "ports": ports}]
    own = {"podSelector": selector(), "policyTypes": ["Ingress"], "ingress": ingress}
    assert policies["demo.0.allow-from"] == own
    assert [name for name, spec in policies.items() if guests[0] in spec["ingress"][0]["from"]] == ["demo.0.allow-from"]


# --- the plan
@pytest.mark.parametrize("obstacle", ["a foreign name", "a refusal"])
def test_edit_does_not_expose_running_tasks_before_the_policies_exist(obstacle):
    world = settled(make_cluster(FILTERED, isolation=CLUSTER))
    edited = make_cluster(FILTERED, isolation=FILTERS, generation=2, status={"isolation": "Cluster"})
    if obstacle == "a foreign name":
        world.create("NetworkPolicy", {"metadata": {"name": "demo.worker"}, "spec": {"podSelector": {}}})
    planned = world.plan(edited)
    created = [one for one in planned.actions if creates(one, "NetworkPolicy")]
    for one in created:
        world.apply(one, edited)
        if obstacle == "a refusal":
            world.delete("NetworkPolicy", one.name)
    waits = [step for group in planned.groups for step in group.steps if isinstance(step.action, Delete)]
    if obstacle == "a foreign name":
        assert waits == []
        status = status_of(world.roster(edited), world.ledger, (), (), world.now)
        assert status["isolation"] == "Cluster"
    else:
        (gate,) = {step.gate for group in planned.groups for step in group.steps if step.action in created}
        assert [gate in step.needs for step in waits] == [True]


def test_narrower_selector_waits_for_the_policy_of_the_tasks_that_it_leaves_out():
    world = settled(make_cluster(FILTERED, isolation=FILTERS))
    apart = {**FILTERED, "worker": {**FILTERED["worker"], "taskDeviceFilters": {"1": ["/job:worker"]}}}
    groups = world.plan(make_cluster(apart, isolation=FILTERS, generation=2)).groups
    (create,) = (step for group in groups for step in group.steps if creates(step.action, "NetworkPolicy"))
    (patch,) = (step for group in groups for step in group.steps if step.action.name == "demo.worker")
    assert create.gate in patch.needs
    assert [group.phase for group in groups if patch in group.steps] == ["tell"]


def test_policy_of_a_removed_job_stays_while_its_pods_do():
    world = settled(make_cluster({"chief": {}, "worker": {"port": 3000}}, isolation=CLUSTER))
    smaller = make_cluster({"chief": {}}, isolation=CLUSTER, generation=2)
    for _ in range(2):
        world.apply_all(world.plan(smaller).actions, smaller)
    assert "demo.worker" in world.names("NetworkPolicy")
    world.settle(smaller)
    assert world.names("NetworkPolicy") == {"demo"}
    world.settle(make_cluster({"chief": {}}, isolation={"mode": "None"}, generation=3))
    assert world.names("NetworkPolicy") == set()


def test_tasks_that_run_on_after_the_end_stay_protected():
    cluster, world = running({"chief": {}, "ps": {}}, isolation=CLUSTER, cleanPodPolicy="None")
    world.pod_ends("demo-chief-0", "Succeeded")
    world.settle(cluster)
    assert world.ledger.verdict is not None
    world.edit("NetworkPolicy", "demo", {"spec": {"ingress": [{}]}})
    assert [one.reason for one in world.plan(cluster).actions] == [reasons.ISOLATION_CHANGED]


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (OTHERS["nobody's"], reasons.NAME_TAKEN, "NetworkPolicy demo exists"),
        (LEAVING, reasons.TASKS_NOT_READY, "NetworkPolicy demo is being deleted and will be re-created"),
    ],
)
def test_policy_that_cannot_be_used_holds_up_the_pods(change, reason, words):
    """A policy that the operator cannot write does not protect the pods."""
    cluster, world = running(isolation=CLUSTER)
    world.edit("NetworkPolicy", "demo", change)
    world.delete("Pod", "demo-worker-0", force=True)
    planned = world.plan(cluster)
    assert not any(creates(one, "Pod") for one in planned.actions)
    (finding,) = planned.findings
    assert (finding.reason, words in finding.message) == (reason, True)
