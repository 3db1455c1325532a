"""The operator is killed by SIGKILL again and again, at chosen writes and at random moments, while it works.

A clean run of the same steps is the reference: after each step the world must become equal to it, and over the whole
run no object may be created more often than in the clean run, nor any be deleted more often.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from support.audit import AuditLog
from support.fault_proxy import Fault, FaultProxy
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
    Step("creation", lambda world: world.launch("c", JOBS)),
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
KILLS_A_STEP = 3
SEEDS = (20170, 20171)


@dataclass(frozen=True)
class Reference:
    """What a run without a crash does: the world after each step, its writes in each step, and all its requests."""

    worlds: dict[str, Object]
    writes: dict[str, int]
    requests: Counter[tuple[str, str, str]]


def carried_out(world: World, step: Step) -> bool:
    cluster = world.cluster("c")
    told = [c for c in cluster.get("status", {}).get("conditions", []) if c["type"] == "MembershipPublished"]
    pods = list(world.pods().values())
    return (
        is_settled(cluster)
        and [c["status"] for c in told] == ["True"]
        and not any(pod["metadata"].get("deletionTimestamp") for pod in pods)
        and step.done(pods)
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
    """The run without a crash."""
    operator_process.restore()
    world = World(objects, new_namespace())
    begin = audit.position()
    worlds: dict[str, Object] = {}
    writes: dict[str, int] = {}
    for step in STEPS:
        position = audit.position()
        step.edit(world)
        eventually(lambda step=step: carried_out(world, step), what=f"{step.name} is carried out")
        worlds[step.name] = snapshot(world, "c")
        writes[step.name] = len(audit.writes(position, user=OPERATOR_USER, namespace=world.namespace))
    return Reference(worlds, writes, requests(audit, world, begin))


@pytest.mark.parametrize("seed", SEEDS)
def test_crash_at_any_point_ends_in_the_same_world(  # noqa: PLR0917 - fixtures, by name
    seed: int,
    reference: Reference,
    world: World,
    lied_to: OperatorProcess,
    fault_proxy: FaultProxy,
    audit: AuditLog,
) -> None:
    """Killed three times in each step, the operator always ends in the world of the clean run, with no extra write."""
    chance = random.Random(seed)  # noqa: S311 - it picks where to crash, and must do so again
    begin = audit.position()
    kills = 0
    for step in STEPS:
        kills += crash_through(step, world, lied_to, fault_proxy, chance, writes=reference.writes[step.name])
        what = f"with seed {seed} the world after {step.name!r} is that of the clean run"
        await_snapshot(world, "c", reference.worlds[step.name], what=what)

    assert kills == KILLS_A_STEP * len(STEPS)
    done = requests(audit, world, begin)
    assert {key: count for key, count in done.items() if count > reference.requests[key]} == {}


def crash_through(
    step: Step, world: World, operator: OperatorProcess, proxy: FaultProxy, chance: random.Random, *, writes: int
) -> int:
    """Carry out a step while the operator is killed at two writes and at one random moment; leave it running."""
    for attempt in range(KILLS_A_STEP - 1):
        fault = Fault(
            chance.choice(["call-before", "call-after"]),
            writes=True,
            times=1,
            skip=chance.randrange(max(1, writes >> attempt)),
            action=operator.kill,
        )
        with proxy.fault(fault):
            if attempt == 0:
                step.edit(world)
            # The second time there may be too few writes left to reach the one chosen: then it dies when done.
            eventually(
                lambda fault=fault: not operator.running or (not fault.met and carried_out(world, step)),
                what=f"the operator is killed in {step.name!r}, or done with it",
            )
            operator.kill()
        operator.start(kubeconfig=proxy.kubeconfig, wait=False)
    die_within(operator, seconds=chance.uniform(0.001, 0.2), proxy=proxy)
    operator.start(kubeconfig=proxy.kubeconfig, wait=False)
    return KILLS_A_STEP


def die_within(operator: OperatorProcess, *, seconds: float, proxy: FaultProxy) -> None:
    """Kill the operator a moment after it has begun to talk to the API server."""
    asked = Fault("call-later", action=operator.kill, delay=seconds, times=1)
    with proxy.fault(asked):
        eventually(lambda: not operator.running, what="the operator is killed")
