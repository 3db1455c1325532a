"""Isolation on a real API server: which NetworkPolicies exist, when, and how they change."""

from collections import Counter

import pytest
from support.lives import await_another_pass
from support.objects import RESOURCE_QUOTAS
from support.rbac import OPERATOR_USER
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("operator")

FILTERED = {
    "chief": {},
    "ps": {"deviceFilters": ["/job:worker", "/job:chief"]},
    "worker": {"replicas": 2, "maxReplicas": 4, "deviceFilters": ["/job:ps", "/job:chief"]},
}
#: Peers in every form; the server stores some of them in another form.
PEERS = [
    {"podSelector": {"matchLabels": {"app": "notebook"}}},
    {"podSelector": {}},
    {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}, "podSelector": {}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
    {"ipBlock": {"cidr": "2001:db8::/32", "except": []}},
]


def await_policies(world, *names: str) -> None:
    eventually(lambda: sorted(world.network_policies()), lambda found: found == sorted(names), what="the policies")


@pytest.mark.parametrize("scope", ["Task", "All"])
@pytest.mark.parametrize("mode", ["Cluster", "DeviceFilters"])
def test_policies_are_stored_as_they_were_meant(world, audit, mode, scope):
    """For all forms of peers, the stored specs equal the operator's: it writes each policy once."""
    world.launch("c", FILTERED, isolation={"mode": mode, "portScope": scope, "allowFrom": PEERS})
    world.await_settled("c")
    position = audit.await_quiet(OPERATOR_USER, namespace=world.namespace)

    await_another_pass(world, "c")

    written = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    assert Counter((w.verb, w.target) for w in written) == {("patch", "tfclusters/status"): 1}


@pytest.mark.server
def test_no_pod_runs_without_its_policy(world):
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/networkpolicies.networking.k8s.io": "0"}}}
    world.objects.create(RESOURCE_QUOTAS, world.namespace, quota)
    eventually(lambda: world.demand(RESOURCE_QUOTAS, "q").get("status"), what="the quota counts")
    world.launch("c", {"worker": {}})

    refused = world.await_condition("c", "Ready", status="False", reason="Rejected")
    assert "NetworkPolicy c: " in refused["message"]
    assert "exceeded quota" in refused["message"]
    assert world.pods() == {}

    world.delete(RESOURCE_QUOTAS, "q")
    world.await_settled("c")
    await_policies(world, "c")
