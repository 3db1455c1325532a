"""What enforces NetworkPolicies here does as Kubernetes documents them, so that the tests of isolation can trust it.

No TFCluster is in sight: raw policies, raw pods.  The cases are those of "Network Policies" in the documentation of
Kubernetes, and the shape of ours.  All of them are judged at once, each on a server of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from live_world import LiveWorld, who_reaches
from support.objects import NAMESPACES, NETWORK_POLICIES, PODS, Object, Objects
from support.waiting import eventually
from task_programs import REACHED, listener

# The former starts what enforces, before the pods of a module; the latter skips a test where nobody does.
pytestmark = [
    pytest.mark.usefixtures("network_policies", "enforced_policies"),
    pytest.mark.exhaustive,
    pytest.mark.alone,
]

TASK, WEB = 2222, 8080
PORTS = (TASK, WEB)
PEER, OTHER, OUTSIDER = "peer", "other", "outsider"
#: In the server's namespace, but for the outsider, whose labels are those of the peer.
CALLERS = (PEER, OTHER, OUTSIDER)
NOBODY = {TASK: set(), WEB: set()}
EVERYBODY = {TASK: set(CALLERS), WEB: set(CALLERS)}

FROM_PEER = {"podSelector": {"matchLabels": {"role": PEER}}}
FROM_OTHER = {"podSelector": {"matchLabels": {"role": OTHER}}}
ON_TASK = {"protocol": "TCP", "port": TASK}


def of_the_outside(namespace: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


@dataclass(frozen=True, slots=True)
class Outside:
    """What a case must know of the pods: the outsider's namespace, and the other's IP."""

    namespace: str
    other_ip: str


@dataclass(frozen=True, slots=True)
class Case:
    """Policies on one server, and who reaches which of its ports then."""

    policies: Callable[[Outside], list[list[Object]]]
    """The ingress rules of each policy."""
    reached: dict[int, set[str]]


def only(*callers: str) -> dict[int, set[str]]:
    return {TASK: set(callers), WEB: set(callers)}


CASES = {
    "no-policy": Case(lambda _: [], EVERYBODY),
    "no-rule": Case(lambda _: [[]], NOBODY),
    "empty-rule": Case(lambda _: [[{}]], EVERYBODY),
    "pod-selector": Case(lambda _: [[{"from": [FROM_PEER]}]], only(PEER)),
    "all-pods-of-the-namespace": Case(lambda _: [[{"from": [{"podSelector": {}}]}]], only(PEER, OTHER)),
    "in": Case(
        lambda _: [[{"from": [{"podSelector": {"matchExpressions": [expression("In", PEER, "x")]}}]}]], only(PEER)
    ),
    "not-in": Case(
        lambda _: [[{"from": [{"podSelector": {"matchExpressions": [expression("NotIn", PEER, "x")]}}]}]], only(OTHER)
    ),
    "namespace-selector": Case(lambda out: [[{"from": [of_the_outside(out.namespace)]}]], only(OUTSIDER)),
    "both-selectors": Case(
        lambda out: [[{"from": [{**of_the_outside(out.namespace), **FROM_OTHER}]}]],
        NOBODY,
    ),
    "either-selector": Case(
        lambda out: [[{"from": [of_the_outside(out.namespace), FROM_OTHER]}]], only(OUTSIDER, OTHER)
    ),
    "block-with-exception": Case(
        lambda out: [[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [f"{out.other_ip}/32"]}}]}]],
        only(PEER, OUTSIDER),
    ),
    "port": Case(lambda _: [[{"from": [FROM_PEER], "ports": [ON_TASK]}]], {TASK: {PEER}, WEB: set()}),
    "named-port": Case(
        lambda _: [[{"ports": [{"protocol": "TCP", "port": f"p{WEB}"}]}]], {**NOBODY, WEB: set(CALLERS)}
    ),
    "other-ports-by-ranges": Case(
        lambda _: [
            [
                {"from": [FROM_PEER], "ports": [ON_TASK]},
                {"ports": [{"port": 1, "endPort": TASK - 1}, {"port": TASK + 1, "endPort": 65535}]},
            ]
        ],
        {TASK: {PEER}, WEB: set(CALLERS)},
    ),
    "two-policies": Case(
        lambda _: [[{"from": [FROM_PEER], "ports": [ON_TASK]}], [{"from": [FROM_OTHER]}]],
        {TASK: {PEER, OTHER}, WEB: {OTHER}},
    ),
}


def expression(operator: str, *values: str) -> Object:
    return {"key": "role", "operator": operator, "values": list(values)}


def policy(name: str, case: str, rules: list[Object]) -> Object:
    spec = {"podSelector": {"matchLabels": {"case": case}}, "policyTypes": ["Ingress"], "ingress": rules}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def outside(
    live_world: Callable[[str], LiveWorld], new_namespace: Callable[[], str], objects: Objects
) -> Iterator[LiveWorld]:
    """Another namespace, with the outsider in it."""
    name = new_namespace()
    world = live_world(name)
    world.start(listener(world.image, OUTSIDER, PORTS, role=PEER))
    yield world
    objects.delete(NAMESPACES, "", name)


@pytest.fixture(scope="module")
def servers(shared_world: LiveWorld, outside: LiveWorld) -> LiveWorld:
    """The callers, the policies of all cases, and after them the server of each."""
    world = shared_world
    world.start(*(listener(world.image, name, PORTS, role=name) for name in (PEER, OTHER)))
    facts = Outside(outside.namespace, world.ip(OTHER))
    for name, case in CASES.items():
        for number, rules in enumerate(case.policies(facts)):
            world.objects.create(NETWORK_POLICIES, world.namespace, policy(f"{name}-{number}", name, rules))
    world.start(*(listener(world.image, name, PORTS, case=name) for name in CASES))
    return world


def test_every_case_is_as_documented(servers, outside):
    """Who reaches which port of a pod follows the policies that select it, case by case."""
    addresses = {(name, port): f"{servers.ip(name)}:{port}" for name, port in product(CASES, PORTS)}
    expected = {addresses[name, port]: case.reached[port] for name, case in CASES.items() for port in PORTS}
    callers = {PEER: servers, OTHER: servers, OUTSIDER: outside}

    eventually(
        lambda: who_reaches(addresses.values(), callers),
        lambda found: {a: (found[a], expected[a]) for a in expected if found[a] != expected[a]} == {},
        what="each server is reached by those it should be reached by",
    )


def test_late_and_replaced_pods_are_let_in(servers):
    """A pod that the policy names is let in whenever it comes, and again after it was replaced at another address."""
    address = f"{servers.ip('pod-selector')}:{TASK}"
    late = listener(servers.image, "late", PORTS, role=PEER)
    seen = set()
    for _ in range(2):
        servers.start(late)
        seen.add(servers.ip("late"))
        eventually(lambda: servers.python("late", REACHED, address), what="the late pod is let in")
        servers.delete(PODS, "late")
        eventually(lambda: servers.get(PODS, "late"), lambda found: found is None, what="the late pod is gone")

    assert len(seen) == 2
    assert servers.python(OTHER, REACHED, address) == []


def test_policy_that_goes_opens_the_pod_again(servers):
    """After the only policy on a pod is deleted, everybody reaches it."""
    address = f"{servers.ip('no-rule')}:{TASK}"
    assert servers.python(OTHER, REACHED, address) == []

    servers.delete(NETWORK_POLICIES, "no-rule-0")

    eventually(lambda: servers.python(OTHER, REACHED, address), what="the server is open")
