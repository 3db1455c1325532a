"""Isolation in the plan, the spec and the status: which NetworkPolicies there are, when, and what waits for them."""

from __future__ import annotations

from typing import Any

import pytest
from unit.in_memory import InMemoryWorld, groups_of, make_body, make_cluster, settled

from tfcluster_operator.model import reasons
from tfcluster_operator.model.actions import CreateNetworkPolicy, CreatePod, Delete, Finding, Patch, subject_of
from tfcluster_operator.model.isolation import policies_of
from tfcluster_operator.model.parse import InvalidSpecError, parse
from tfcluster_operator.model.roster import call_roll
from tfcluster_operator.model.spec import Isolation
from tfcluster_operator.model.status import status_of

CLUSTER = {"mode": "Cluster"}
FILTERS = {"mode": "DeviceFilters"}
FILTERED: dict[str, Any] = {
    "chief": {},
    "ps": {"deviceFilters": ["/job:worker", "/job:chief"]},
    "worker": {"replicas": 2, "deviceFilters": ["/job:ps", "/job:chief"]},
}


def selector(job: str = "", *among: str) -> dict[str, Any]:
    """Spell the selector of a cluster's pods, of a job's, or of those of some jobs."""
    labels = {"tfcluster.dev/cluster": "demo", **({"tfcluster.dev/job": job} if job else {})}
    chosen = [{"key": "tfcluster.dev/job", "operator": "In", "values": list(among)}] if among else []
    return {"matchLabels": labels, **({"matchExpressions": chosen} if chosen else {})}


OTHER_PORTS = {
    "ports": [
        {"protocol": "TCP", "port": 1, "endPort": 2221},
        {"protocol": "TCP", "port": 2223, "endPort": 65535},
        {"protocol": "UDP"},
        {"protocol": "SCTP"},
    ]
}
TASK_PORT = [{"protocol": "TCP", "port": 2222}]


# --- what the policies say


def test_mode_cluster_is_one_policy():
    """The tasks' port is for the tasks; the other ports stay open."""
    (policy,) = policies_of(make_cluster(isolation=CLUSTER))

    assert (policy.name, policy.job) == ("demo", "")
    assert policy.spec == {
        "podSelector": selector(),
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": selector()}], "ports": TASK_PORT}, OTHER_PORTS],
    }


def test_jobs_with_ports_of_their_own_have_policies_of_their_own():
    """A policy closes one port, so each job has its policy where the ports differ."""
    policies = policies_of(make_cluster({"chief": {}, "worker": {"port": 1}}, isolation=CLUSTER))

    assert [(one.name, one.spec["podSelector"]) for one in policies] == [
        ("demo.chief", selector("chief")),
        ("demo.worker", selector("worker")),
    ]
    assert policies[1].spec["ingress"] == [
        {"from": [{"podSelector": selector()}], "ports": [{"protocol": "TCP", "port": 1}]},
        {"ports": [{"protocol": "TCP", "port": 2, "endPort": 65535}, {"protocol": "UDP"}, {"protocol": "SCTP"}]},
    ]


def test_device_filters_are_a_policy_for_each_job():
    """Workers do not reach each other, and whole jobs are selected together."""
    policies = {one.name: one.spec for one in policies_of(make_cluster(FILTERED, isolation=FILTERS))}

    assert list(policies) == ["demo.chief", "demo.ps", "demo.worker"]
    assert policies["demo.worker"]["ingress"][0]["from"] == [{"podSelector": selector("", "chief", "ps")}]
    assert policies["demo.chief"]["ingress"][0]["from"] == [{"podSelector": selector()}]


def test_tasks_that_filters_tell_apart_are_selected_by_index():
    """A ps of its own for worker 3: it has a policy, and so has that ps; the rest is what they are not."""
    jobs = {
        "ps": {"replicas": 2, "deviceFilters": ["/job:ps"]},
        "worker": {
            "replicas": 5,
            "deviceFilters": ["/job:ps/task:0"],
            "taskDeviceFilters": {"3": ["/job:ps/task:1"]},
        },
    }

    policies = {one.name: one.spec for one in policies_of(make_cluster(jobs, isolation=FILTERS))}

    def by_index(job: str, operator: str, *values: str) -> dict[str, Any]:
        chosen = {"key": "tfcluster.dev/task-index", "operator": operator, "values": list(values)}
        return {**selector(job), "matchExpressions": [chosen]}

    assert {name: spec["podSelector"] for name, spec in policies.items()} == {
        "demo.ps": by_index("ps", "NotIn", "0", "1"),
        "demo.ps.0": by_index("ps", "In", "0"),
        "demo.ps.1": by_index("ps", "In", "1"),
        "demo.worker": by_index("worker", "NotIn", "3"),
        "demo.worker.3": by_index("worker", "In", "3"),
    }
    peers = {name: [one["podSelector"] for one in spec["ingress"][0]["from"]] for name, spec in policies.items()}
    assert peers["demo.ps.0"] == [selector("", "ps"), by_index("worker", "NotIn", "3")]
    assert peers["demo.worker.3"] == [by_index("ps", "In", "1")]


def test_no_selector_names_more_tasks_than_a_network_can_take():
    """250 workers of one server each, in turns of a hundred: selectors stay short, and each worker is selected once."""
    apart = {str(index): ["/job:ps/task:0"] for index in range(250)}
    jobs = {
        "ps": {"replicas": 2, "deviceFilters": ["/job:ps"]},
        "worker": {"replicas": 300, "deviceFilters": ["/job:ps/task:1"], "taskDeviceFilters": apart},
    }
    policies = {one.name: one.spec for one in policies_of(make_cluster(jobs, isolation=FILTERS))}

    def values(selector: dict[str, Any]) -> list[int]:
        return [len(one["values"]) for one in selector.get("matchExpressions", ()) if "task-index" in one["key"]]

    assert sorted(policies) == [
        "demo.ps",
        "demo.ps.0",
        "demo.ps.1",
        "demo.worker",
        "demo.worker.0",
        "demo.worker.100",
        "demo.worker.200",
    ]
    assert [values(policies[f"demo.worker.{first}"]["podSelector"]) for first in (0, 100, 200)] == [[100], [100], [50]]
    assert values(policies["demo.worker"]["podSelector"]) == [100, 100, 50]
    peers = [one["podSelector"] for one in policies["demo.ps.0"]["ingress"][0]["from"]]
    assert [values(one) for one in peers] == [[], [100], [100], [50]]


def test_task_that_nobody_may_reach_has_no_rule_for_its_port():
    """A rule without peers would let everybody in."""
    (policy,) = policies_of(
        make_cluster(
            {"worker": {"replicas": 2, "deviceFilters": ["/job:worker/task:9"], "maxReplicas": 10}}, isolation=FILTERS
        )
    )[:1]
    alone = policies_of(make_cluster({"evaluator": {}}, isolation={**FILTERS, "portScope": "All"}))

    assert policy.spec["ingress"][0]["from"] == [
        {
            "podSelector": {
                **selector("worker"),
                "matchExpressions": [{"key": "tfcluster.dev/task-index", "operator": "In", "values": ["9"]}],
            }
        }
    ]
    assert [one.spec for one in alone] == [{"podSelector": selector("evaluator"), "policyTypes": ["Ingress"]}]


def test_peers_are_spelled_as_the_server_stores_them():
    """What is empty goes, but for a selector: an empty one means every pod, none means no such condition."""
    peers = [
        {"podSelector": {"matchLabels": {}, "matchExpressions": None}, "ipBlock": None},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": []}},
    ]
    (policy,) = policies_of(make_cluster(isolation={**CLUSTER, "allowFrom": peers}))

    assert policy.spec["ingress"][0]["from"][1:] == [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]


def policy_of_somebody_else(selector: dict[str, Any], *types: str) -> dict[str, Any]:
    """Make a NetworkPolicy that no TFCluster controls."""
    return {"metadata": {"name": "theirs"}, "spec": {"podSelector": selector, "policyTypes": list(types)}}


def test_other_ports_are_left_to_the_policy_that_selects_the_pods_already():
    """Policies are a union: what opens the other ports would cancel somebody's default-deny."""
    cluster, world = make_cluster(isolation=CLUSTER), InMemoryWorld()
    world.create("NetworkPolicy", policy_of_somebody_else({}, "Ingress"))
    world.settle(cluster)

    assert world.objects["NetworkPolicy", "demo"]["spec"]["ingress"] == [
        {"from": [{"podSelector": selector()}], "ports": TASK_PORT}
    ]

    world.delete("NetworkPolicy", "theirs")
    world.settle(cluster)
    assert world.objects["NetworkPolicy", "demo"]["spec"]["ingress"][1:] == [OTHER_PORTS]


@pytest.mark.parametrize(
    ("selected", "types", "governs"),
    [
        ({}, ["Ingress", "Egress"], True),
        ({}, ["Egress"], False),
        ({"matchLabels": {"app": "web"}}, ["Ingress"], False),
        ({"matchLabels": {"tfcluster.dev/job": "worker", "tfcluster.dev/task-index": "1"}}, ["Ingress"], True),
        ({"matchExpressions": [{"key": "tfcluster.dev/cluster", "operator": "Exists"}]}, ["Ingress"], True),
        ({"matchExpressions": [{"key": "tfcluster.dev/job", "operator": "In", "values": ["ps"]}]}, ["Ingress"], False),
        (
            {"matchExpressions": [{"key": "tfcluster.dev/job", "operator": "NotIn", "values": ["ps"]}]},
            ["Ingress"],
            True,
        ),
        ({"matchExpressions": [{"key": "tfcluster.dev/job", "operator": "DoesNotExist"}]}, ["Ingress"], False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, ["Ingress"], False),
    ],
)
def test_policy_governs_the_jobs_whose_pods_it_selects(selected, types, governs):
    """For incoming connections, by the labels of the pods; the task's index may be any."""
    cluster, world = make_cluster({"worker": 2}, isolation=CLUSTER), InMemoryWorld()
    world.create("NetworkPolicy", policy_of_somebody_else(selected, *types))
    world.settle(cluster)

    assert (OTHER_PORTS not in world.objects["NetworkPolicy", "demo"]["spec"]["ingress"]) == governs


def test_jobs_that_are_governed_elsewhere_have_policies_of_their_own():
    """The chief's pods are closed by somebody, the workers' are not."""
    cluster, world = make_cluster(isolation=CLUSTER), InMemoryWorld()
    world.create("NetworkPolicy", policy_of_somebody_else({"matchLabels": {"tfcluster.dev/job": "chief"}}, "Ingress"))
    world.settle(cluster)

    assert len(world.objects["NetworkPolicy", "demo.chief"]["spec"]["ingress"]) == 1
    assert len(world.objects["NetworkPolicy", "demo.worker"]["spec"]["ingress"]) == 2


def test_guests_have_a_policy_of_their_own_where_there_are_several():
    """A list of peers may be long, and the policies many: it stands once."""
    peers = [{"podSelector": {"matchLabels": {"app": "notebook"}}}]
    jobs = {**FILTERED, "ps": {**FILTERED["ps"], "port": 3000}}
    policies = {
        one.name: one.spec for one in policies_of(make_cluster(jobs, isolation={**FILTERS, "allowFrom": peers}))
    }

    assert policies["demo.0.allow-from"] == {
        "podSelector": selector(),
        "policyTypes": ["Ingress"],
        "ingress": [{"from": peers, "ports": [{"protocol": "TCP", "port": 2222}, {"protocol": "TCP", "port": 3000}]}],
    }
    assert [name for name, spec in policies.items() if peers[0] in spec["ingress"][0]["from"]] == ["demo.0.allow-from"]


def test_no_two_policies_have_one_name():
    """A task that is apart is told from a job whose name ends in a number."""
    jobs = {
        "ps": {"deviceFilters": ["/job:ps"]},
        "worker": {"replicas": 2, "deviceFilters": ["/job:ps"], "taskDeviceFilters": {"1": ["/job:worker"]}},
        "worker_1": {"deviceFilters": ["/job:ps"]},
    }

    names = [one.name for one in policies_of(make_cluster(jobs, isolation=FILTERS))]

    assert {"demo.worker", "demo.worker.1", "demo.worker-1"} < set(names)
    assert len(names) == len(set(names))


# --- the plan


@pytest.mark.parametrize("obstacle", ["a foreign name", "a refusal"])
def test_edit_opens_no_running_task_while_a_policy_cannot_be_made(obstacle):
    """The policy that there is stays until all others are there, and the status tells the mode that is in force."""
    world = settled(make_cluster(FILTERED, isolation=CLUSTER))
    edited = make_cluster(FILTERED, isolation=FILTERS, generation=2, status={"isolation": "Cluster"})
    if obstacle == "a foreign name":
        world.create("NetworkPolicy", {"metadata": {"name": "demo.worker"}, "spec": {"podSelector": {}}})
    planned = world.plan(edited)
    creates = [one for one in planned.actions if isinstance(one, CreateNetworkPolicy)]
    for one in creates:
        world.apply(one, edited)
        if obstacle == "a refusal":
            world.delete("NetworkPolicy", one.policy.name)

    waits = [step for group in planned.groups for step in group.steps if isinstance(step.action, Delete)]
    if obstacle == "a foreign name":
        assert waits == []
        status = status_of(world.roster(edited), world.ledger, (), (), world.now)
        assert status["isolation"] == "Cluster"
    else:
        (gate,) = {step.gate for group in planned.groups for step in group.steps if step.action in creates}
        assert [gate in step.needs for step in waits] == [True]


def test_narrower_selector_waits_for_the_policy_of_the_tasks_that_it_leaves_out():
    """The rest is told apart from worker 1 when worker 1 has a policy of its own, and not before."""
    world = settled(make_cluster(FILTERED, isolation=FILTERS))
    apart = {**FILTERED, "worker": {**FILTERED["worker"], "taskDeviceFilters": {"1": ["/job:worker"]}}}
    groups = world.plan(make_cluster(apart, isolation=FILTERS, generation=2)).groups

    (create,) = (step for group in groups for step in group.steps if isinstance(step.action, CreateNetworkPolicy))
    (patch,) = (step for group in groups for step in group.steps if subject_of(step.action)[1] == "demo.worker")
    assert create.gate in patch.needs
    assert [group.phase for group in groups if patch in group.steps] == ["tell"]


def test_policy_of_a_removed_job_stays_while_its_pods_do():
    """They terminate for as long as their grace period, and listen still."""
    world = settled(make_cluster({"chief": {}, "worker": {"port": 3000}}, isolation=CLUSTER))
    smaller = make_cluster({"chief": {}}, isolation=CLUSTER, generation=2)
    for action in world.plan(smaller).actions:
        world.apply(action, smaller)
    world.apply_all(world.plan(smaller).actions, smaller)
    assert "demo.worker" in world.names("NetworkPolicy")

    world.settle(smaller)
    assert world.names("NetworkPolicy") == {"demo"}


def test_tasks_that_run_on_after_the_end_stay_protected():
    """CleanPodPolicy None leaves them running; who opens their policy is undone."""
    cluster = make_cluster({"chief": {}, "ps": {}}, isolation=CLUSTER, cleanPodPolicy="None")
    world = settled(cluster)
    world.pod_ends("demo-chief-0", "Succeeded")
    world.settle(cluster)
    assert world.ledger.verdict is not None
    world.edit("NetworkPolicy", "demo", {"spec": {"ingress": [{}]}})

    assert [one.reason for one in world.plan(cluster).actions] == [reasons.ISOLATION_CHANGED]


def test_policies_come_before_the_pods_and_the_pods_need_them():
    """They are published first; where the server refuses one, no pod is created without it."""
    first, last = groups_of(InMemoryWorld().plan(make_cluster(isolation=CLUSTER)))
    steps = [step for group in InMemoryWorld().plan(make_cluster(isolation=CLUSTER)).groups for step in group.steps]
    (gate,) = {step.gate for step in steps if isinstance(step.action, CreateNetworkPolicy)}

    assert [subject_of(one) for one in first][:2] == [("Service", "demo"), ("NetworkPolicy", "demo")]
    assert {type(one) for one in last} == {CreatePod}
    assert all(gate in step.needs for step in steps if isinstance(step.action, CreatePod))


def test_foreign_policy_of_the_name_holds_up_the_pods():
    """A policy that we cannot write protects nothing."""
    world = InMemoryWorld()
    world.create("NetworkPolicy", {"metadata": {"name": "demo"}, "spec": {"podSelector": {}}})

    planned = world.plan(make_cluster(isolation=CLUSTER))

    assert not any(isinstance(one, CreatePod) for one in planned.actions)
    assert [one.reason for one in planned.findings] == [reasons.NAME_TAKEN]
    assert "NetworkPolicy demo exists" in planned.findings[0].message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spec": {"ingress": [{}]}}, reasons.ISOLATION_CHANGED),
        ({"spec": {"podSelector": {"matchLabels": {"app": "x"}}}}, reasons.ISOLATION_CHANGED),
        ({"spec": {"egress": [{}], "policyTypes": ["Ingress", "Egress"]}}, reasons.ISOLATION_CHANGED),
        ({"metadata": {"labels": {"app.kubernetes.io/name": None}}}, reasons.REPAIRED),
    ],
)
def test_edited_policy_is_put_right(change, reason):
    """Whatever was added or taken away: one patch, and the policy is as it was."""
    cluster = make_cluster(isolation=CLUSTER)
    world = settled(cluster)
    before = dict(world.objects["NetworkPolicy", "demo"])
    world.edit("NetworkPolicy", "demo", change)

    (patch,) = world.plan(cluster).actions
    world.apply(patch, cluster)

    assert isinstance(patch, Patch)
    assert patch.reason == reason
    now = world.objects["NetworkPolicy", "demo"]
    assert now["spec"] == before["spec"]
    assert now["metadata"]["labels"] == before["metadata"]["labels"]


def test_edit_of_the_filters_reaches_the_policies_and_replaces_no_pod():
    """The new filters are let through, and what they do not need any more goes."""
    special = {**FILTERED, "worker": {**FILTERED["worker"], "taskDeviceFilters": {"1": ["/job:worker"]}}}
    world = settled(make_cluster(special, isolation=FILTERS))
    assert world.names("NetworkPolicy") == {"demo.chief", "demo.ps", "demo.worker", "demo.worker.1"}

    edited = make_cluster(FILTERED, isolation=FILTERS, generation=2)
    actions = world.plan(edited).actions
    world.apply_all(actions, edited)

    assert world.names("NetworkPolicy") == {"demo.chief", "demo.ps", "demo.worker"}
    assert not [one for one in actions if subject_of(one)[0] == "Pod" and not isinstance(one, Patch)]
    assert {one.reason for one in actions if isinstance(one, Delete)} == {reasons.UNUSED}
    assert world.plan(edited).actions == ()


def test_mode_none_takes_the_policies_away():
    """They go when they are no longer wanted; the pods stay and are told."""
    world = settled(make_cluster(isolation=CLUSTER))

    opened = make_cluster(isolation={"mode": "None"}, generation=2)
    world.settle(opened)

    assert world.names("NetworkPolicy") == set()


# --- what the spec says, and what applies where it says nothing


def isolation_of(spec: Any = None, status: Any = None, default: Any = "Cluster") -> Isolation:
    """Read the isolation of a cluster under an operator with this default."""
    body = make_body(status=status, **({} if spec is None else {"isolation": spec}))
    return parse(body, default_isolation=default).isolation


def test_new_cluster_has_the_default_of_the_operator():
    """It says nothing, and nobody has seen it before."""
    assert isolation_of().mode == "Cluster"
    assert isolation_of(default="None").mode == "None"
    assert isolation_of({"mode": "None"}).mode == "None"


def test_cluster_from_before_there_was_isolation_stays_open():
    """Its pods run, and somebody may talk to them."""
    assert isolation_of(status={"jobs": {"worker": {}}, "internal": {}}).mode == "None"


def test_cluster_that_was_invalid_at_first_is_new_still():
    """Nothing of it ran."""
    assert isolation_of(status={"observedGeneration": 1, "conditions": []}).mode == "Cluster"


def test_default_is_kept_from_the_first_pass_on():
    """Another default of the operator does not change what runs; a mode in the spec comes before it and leaves it."""
    cluster = parse(make_body(isolation=FILTERS), default_isolation="Cluster")
    world = InMemoryWorld()
    world.settle(cluster)
    status = status_of(world.roster(cluster), world.ledger, (), (), world.now)

    assert status["isolation"] == "DeviceFilters"
    assert status["internal"]["isolation"] == "Cluster"
    assert isolation_of(status=status, default="None").mode == "Cluster"
    assert isolation_of(status={**status, "internal": {"isolation": "nonsense"}}, default="Cluster").mode == "None"


def test_open_cluster_says_nothing_of_isolation():
    """So that an upgrade of the operator writes nothing."""
    world, cluster = InMemoryWorld(), make_cluster()
    status = status_of(call_roll(cluster, world.observe(cluster)), world.ledger, (), (), world.now)

    assert "isolation" not in status
    assert "isolation" not in status["internal"]


def test_isolation_that_cannot_be_read_is_named():
    """An older definition lets anything through."""
    with pytest.raises(InvalidSpecError) as caught:
        parse(make_body(isolation={"mode": "Some", "portScope": 7, "allowFrom": [3]}))

    assert caught.value.problems == (
        "spec.isolation.mode: it must be one of None, Cluster, DeviceFilters, and is 'Some'",
        "spec.isolation.portScope: it must be one of Task, All, and is 7",
        "spec.isolation.allowFrom[0]: it must be an object, and is 3",
    )


def test_obstacle_is_a_finding():
    """A policy that is being deleted is waited for."""
    cluster = make_cluster(isolation=CLUSTER)
    world = settled(cluster)
    world.edit("NetworkPolicy", "demo", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})

    assert world.plan(cluster).findings == (
        Finding(
            reasons.TASKS_NOT_READY,
            "NetworkPolicy demo is being deleted and is created again when it is gone",
        ),
    )
