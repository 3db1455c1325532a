"""The operator is killed by SIGKILL again and again, at named writes and soon after its start, while it works.

A clean run of the same steps is the reference: after each step the world must become equal to it, and over the whole
run no object may be created more often than in the clean run, nor any be deleted more often.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from support.audit import AuditLog
from support.fault_proxy import Fault, FaultProxy, Then
from support.manifests import pod_template
from support.objects import Object, Objects
from support.operator_process import OperatorProcess
from support.rbac import OPERATOR_USER
from support.snapshot import await_snapshot, snapshot
from support.waiting import eventually
from support.world import World, is_settled

JOBS = {
    "chief": {},
    "worker": {"replicas": 4, "maxReplicas": 9, "deviceFilters": ["/job:ps", "/job:chief"]},
    "ps": {"replicas": 2, "deviceFilters": ["/job:worker", "/job:chief"]},
}
NEW_IMAGE = "registry.test/train:2"


@dataclass(frozen=True)
class Step:
    """One edit by the user, and what tells that the pods have followed it."""

    name: str
    edit: Callable[[World], object]
    done: Callable[[list[Object]], bool] = lambda _: True


def images(pods: list[Object]) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in pods if "-ps-" in pod["metadata"]["name"]}


def addresses(pods: list[Object]) -> set[str]:
    return {
        entry["value"] for pod in pods for entry in pod["spec"]["containers"][0]["env"] if "ADDRESS" in entry["name"]
    }


STEPS = (
    Step("creation", lambda world: world.launch("c", JOBS, updateStrategy={"type": "Recreate"})),
    Step("scale up", lambda world: world.scale("c", replicas=9)),
    Step("new filters", lambda world: world.edit("c", {"jobs": {"ps": {"deviceFilters": ["/job:chief"]}}})),
    Step("scale down", lambda world: world.scale("c", replicas=3)),
    Step("suspend", lambda world: world.edit("c", {"suspend": True})),
    Step("resume", lambda world: world.edit("c", {"suspend": False})),
    Step(
        "new image of ps",
        lambda world: world.edit("c", {"jobs": {"ps": {"template": pod_template(image=NEW_IMAGE)}}}),
        done=lambda pods: images(pods) == {NEW_IMAGE},
    ),
    Step(
        "new port",
        lambda world: world.edit("c", {"port": 7000}),
        done=lambda pods: all(address.endswith(":7000") for address in addresses(pods)),
    ),
    Step("job removed", lambda world: world.edit("c", {"jobs": {"ps": None, "worker": {"deviceFilters": None}}})),
)
#: Where to crash is drawn once, for both tests; a write is named, for the order in which writes arrive is chance.
SEED = 20170
METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}
#: The conditions that are True when a step has been carried out.
REPORTS = ("MembershipPublished", "UpToDate")


@dataclass(frozen=True)
class Reference:
    """What a run without a crash does: the world after each step, the writes of each step, and how often each was made.

    A write is its verb, resource and name.
    """

    worlds: dict[str, Object]
    writes: dict[str, list[tuple[str, str, str]]]
    requests: Counter[tuple[str, str, str]]


def carried_out(world: World, step: Step) -> bool:
    cluster = world.cluster("c")
    # A status that still speaks of a rollout would make a reference that no other run ends in.
    told = [c for c in cluster.get("status", {}).get("conditions", []) if c["type"] in REPORTS]
    pods = list(world.pods().values())
    return (
        is_settled(cluster)
        and [c["status"] for c in told] == ["True"] * len(REPORTS)
        and not any(pod["metadata"].get("deletionTimestamp") for pod in pods)
        and step.done(pods)
        and world.chief_knows_the_pods("c")
    )


def requests(audit: AuditLog, world: World, position: int) -> Counter[tuple[str, str, str]]:
    """Count the writes that the API server carried out, by verb, resource and name."""
    return Counter(
        (w.verb, w.resource, w.name)
        for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
        if w.verb in {"create", "delete"} and w.resource != "events" and w.code < 300
    )


@pytest.fixture(scope="module")
def reference(
    operator_process: OperatorProcess, objects: Objects, audit: AuditLog, new_namespace: Callable[[], str]
) -> Reference:
    operator_process.restore()
    world = World(objects, new_namespace())
    begin = audit.position()
    worlds: dict[str, Object] = {}
    writes: dict[str, list[tuple[str, str, str]]] = {}
    for step in STEPS:
        position = audit.position()
        step.edit(world)
        eventually(lambda step=step: carried_out(world, step), what=f"{step.name} is carried out")
        worlds[step.name] = snapshot(world, "c")
        made = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
        writes[step.name] = sorted({(w.verb, w.resource, w.name) for w in made if w.resource != "events"})
    return Reference(worlds, writes, requests(audit, world, begin))


@pytest.mark.parametrize("then", ["call-before", pytest.param("call-after", marks=pytest.mark.exhaustive)])
def test_crash_at_any_write_ends_in_the_same_world(  # noqa: PLR0917 - fixtures, by name
    then: Then, reference: Reference, world: World, lied_to: OperatorProcess, fault_proxy: FaultProxy, audit: AuditLog
) -> None:
    """Killed at a write of each step, and again soon after its start, the operator ends in the world of the clean run.

    It dies before the API server hears of the write, or after that and before the answer.  No write is made once more.
    """
    chance = random.Random(SEED)  # noqa: S311 - it picks where to crash, and must do so again
    begin = audit.position()
    for step in STEPS:
        verb, resource, name = chance.choice(reference.writes[step.name])
        fault = Fault(then, method=METHODS[verb], resource=resource, name=name, times=1, action=lied_to.kill)
        await_death(lied_to, fault_proxy, fault, lambda step=step: step.edit(world))
        lied_to.start(kubeconfig=fault_proxy.kubeconfig, wait=False)
        early = Fault("call-later", action=lied_to.kill, delay=chance.uniform(0.001, 0.2), times=1)
        await_death(lied_to, fault_proxy, early)
        lied_to.start(kubeconfig=fault_proxy.kubeconfig, wait=False)
        what = f"the world after {step.name!r}, with a crash at {verb} {resource} {name}, is that of the clean run"
        await_snapshot(world, "c", reference.worlds[step.name], what=what)

    done = requests(audit, world, begin)
    assert {key: count for key, count in done.items() if count > reference.requests[key]} == {}


def await_death(
    operator: OperatorProcess, proxy: FaultProxy, fault: Fault, act: Callable[[], object] = lambda: None
) -> None:
    """Act, and return when the fault has killed the operator."""
    with proxy.fault(fault):
        act()
        eventually(lambda: not operator.running, what=f"the operator is killed: {fault}")
    assert (len(fault.met), operator.exit_code) == (1, -signal.SIGKILL)
