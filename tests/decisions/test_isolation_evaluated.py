"""The NetworkPolicies of a cluster in a small evaluator, for each pair of tasks."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from decisions.strategies import clusters
from decisions.test_visibility import sees
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.examples import examples

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import Isolation, Task, TFCluster
from tfcluster_operator.objects.network_policy import Policy, policies_of

MANY = settings(max_examples=examples(2_000), deadline=None)
SOME = settings(max_examples=examples(400), deadline=None)

_LABELS_OF_ANOTHER = {naming.LABEL_CLUSTER: "demo2", naming.LABEL_JOB: "worker", naming.LABEL_TASK_INDEX: "0"}


@dataclass(frozen=True)
class Peer:
    """The source of a connection: a pod with these labels in such a namespace, or (no labels) an external address."""

    labels: Mapping[str, str] | None
    namespace: str = "default"
    address: str = "192.168.0.1"


# --- the evaluator, as in Kubernetes' "Network Policies" and the API reference


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects labels; an empty one selects all."""
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        {
            "In": labels.get(one["key"]) in one.get("values", ()),
            "NotIn": labels.get(one["key"]) not in one.get("values", ()),
            "Exists": one["key"] in labels,
            "DoesNotExist": one["key"] not in labels,
        }[one["operator"]]
        for one in selector.get("matchExpressions") or ()
    )


def _comes_from(peer: Peer, one: Mapping[str, Any]) -> bool:
    if "ipBlock" in one:
        block, address = one["ipBlock"], ipaddress.ip_address(peer.address)
        excepted = any(address in ipaddress.ip_network(each) for each in block.get("except") or ())
        return address in ipaddress.ip_network(block["cidr"]) and not excepted
    if peer.labels is None:
        return False
    inside = (
        selects(one["namespaceSelector"], {"kubernetes.io/metadata.name": peer.namespace})
        if "namespaceSelector" in one
        else peer.namespace == "default"
    )
    return inside and selects(one.get("podSelector") or {}, peer.labels)


def _goes_to(protocol: str, port: int, one: Mapping[str, Any]) -> bool:
    if one.get("protocol", "TCP") != protocol:
        return False
    return "port" not in one or one["port"] <= port <= one.get("endPort", one["port"])


def lets_in(
    policies: Iterable[Policy], target: Mapping[str, str], peer: Peer, port: int, protocol: str = "TCP"
) -> bool:
    """Return whether a pod of the cluster's namespace accepts a connection: without a policy it accepts all."""
    specs = [one.spec for one in policies if selects(one.spec["podSelector"], target)]
    rules = [rule for spec in specs for rule in spec.get("ingress") or ()]
    return not specs or any(
        ("from" not in rule or not rule["from"] or any(_comes_from(peer, one) for one in rule["from"]))
        and ("ports" not in rule or not rule["ports"] or any(_goes_to(protocol, port, one) for one in rule["ports"]))
        for rule in rules
    )


# --- properties


def labels_of(cluster: TFCluster, task: Task) -> dict[str, str]:
    return naming.task_labels(cluster.name, task.job.name, task.index)


def joined(one: Task, other: Task) -> bool:
    return sees(one.job.filters_of(one.index), other) or sees(other.job.filters_of(other.index), one)


def tasks_of(cluster: TFCluster) -> list[Task]:
    """Return every possible task, and one more of each job: scaling does not edit a policy."""
    return [Task(job, index) for job in cluster.jobs for index in range(job.max_replicas + 1)]


def isolated(cluster: TFCluster, mode: Any) -> TFCluster:
    return replace(cluster, isolation=Isolation(mode=mode))


@MANY
@given(cluster=clusters)
def test_device_filters_open_exactly_the_pairs_that_they_join(cluster):
    """For every pair of tasks: one reaches the other's port if and only if either sees the other."""
    cluster = isolated(cluster, "DeviceFilters")
    policies, tasks = policies_of(cluster), tasks_of(cluster)
    for target in tasks:
        for task in tasks:
            if (task.job.name, task.index) != (target.job.name, target.index):
                peer = Peer(labels_of(cluster, task))
                reaches = lets_in(policies, labels_of(cluster, target), peer, target.job.port)
                assert joined(task, target) == reaches, f"{task} reaches {target}"


@SOME
@given(cluster=clusters)
def test_mode_cluster_admits_only_tasks_of_the_cluster(cluster):
    """All pairs of the cluster's tasks; no pod of another cluster or namespace, and no address."""
    cluster = isolated(cluster, "Cluster")
    policies, tasks = policies_of(cluster), tasks_of(cluster)
    for target in tasks:
        own = labels_of(cluster, target)
        assert all(lets_in(policies, own, Peer(labels_of(cluster, task)), target.job.port) for task in tasks)
        for stranger in (Peer({}), Peer(_LABELS_OF_ANOTHER), Peer(own, namespace="elsewhere"), Peer(None)):
            assert not lets_in(policies, own, stranger, target.job.port)


@SOME
@given(cluster=clusters, mode=st.sampled_from(["Cluster", "DeviceFilters"]), port=st.integers(1, 65_535))
def test_only_the_ports_that_are_meant_are_closed(cluster, mode, port):
    """By default other pods reach every port but the task's, on every protocol; with ports All they reach none."""
    cluster = isolated(cluster, mode)
    everything = replace(cluster, isolation=Isolation(mode=mode, port_scope="All"))
    policies, closed = policies_of(cluster), policies_of(everything)
    for job in cluster.jobs:
        own, stranger = labels_of(cluster, Task(job, 0)), Peer({"app": "x"})
        assert lets_in(policies, own, stranger, port) == (port != job.port)
        assert lets_in(policies, own, stranger, job.port, "UDP")
        assert not any(lets_in(closed, own, stranger, port, protocol) for protocol in ("TCP", "UDP", "SCTP"))


@SOME
@given(cluster=clusters)
def test_allow_from_admits_only_the_selected_peers(cluster):
    """Each peer of allowFrom reaches each task; a pod that none of them selects does not."""
    policies = policies_of(cluster)
    allowed = {
        "notebook": (Peer({"app": "notebook"}), True),
        "far notebook": (Peer({"app": "any"}, namespace="far"), True),
        "address": (Peer(None, address="10.9.9.9"), True),
        "other": (Peer({"kind": "notebook"}), False),
        "other address": (Peer(None, address="11.0.0.1"), False),
    }
    for job in cluster.jobs if policies else ():
        for name, (peer, named) in allowed.items():
            reaches = lets_in(policies, labels_of(cluster, Task(job, 0)), peer, job.port)
            assert reaches == (named and bool(cluster.isolation.allow_from)), name


@SOME
@given(cluster=clusters, more=st.integers(1, 5))
def test_policies_are_few_and_stay_when_the_cluster_is_resized(cluster, more):
    """One for a job, and one for each group of separate tasks; more or fewer tasks change none of them."""
    policies = policies_of(cluster)
    resized = replace(
        cluster,
        jobs=tuple(
            structs.replace(j, replicas=j.replicas + more, max_replicas=j.max_replicas + more) for j in cluster.jobs
        ),
    )

    assert policies_of(resized) == policies
    assert len({policy.name for policy in policies}) == len(policies)
    named = {text for job in cluster.jobs for texts in (job.filters, *job.task_filters.values()) for text in texts}
    if not any("/task:" in text for text in named) and not any(job.task_filters for job in cluster.jobs):
        assert len(policies) <= len(cluster.jobs) + bool(cluster.isolation.allow_from)
    if cluster.isolation.mode == "None":
        assert policies == ()
