"""Executing a plan over HTTP: what a rejection blocks, what continues, and that every reconcile reports a status."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from support.virtual_time import run_in_virtual_time
from unit.async_tests import virtual
from unit.http_operator import (
    JOBS,
    NO_ARCHIVE,
    QUOTA,
    WEBHOOK,
    Operator,
    Refuse,
    declared,
    make_client,
    passes,
    ready,
    when,
)
from unit.http_world import HttpWorld, Refusal, Request
from unit.in_memory import RECREATE, TEMPLATE, InMemoryWorld, make_body, make_cluster, merge_patch, settled

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.engine.work_queue import NextPart
from tfcluster_operator.kube import errors
from tfcluster_operator.kube.execute import Executor, Outcome
from tfcluster_operator.kube.limiter import AdaptiveLimiter
from tfcluster_operator.plan import actions, story, tasks
from tfcluster_operator.plan.actions import EVIDENCE, Finding
from tfcluster_operator.plan.story import SERVICE, pods_gate, template_gate, views_gate


def carry_out(
    world: InMemoryWorld,
    cluster: TFCluster,
    refuse: Refuse = lambda _: None,
    *,
    closed: tuple[str, ...] = (),
    fence: Callable[[], None] | None = None,
    planned: Any = None,
) -> tuple[Outcome, HttpWorld]:
    """Plan for the current objects, and execute the plan; return the outcome and the session."""
    session = HttpWorld(world, refuse)
    planned = planned or world.plan(cluster)

    async def scenario() -> Outcome:
        executor = Executor(make_client(session, fence=fence), world.stores, NO_ARCHIVE)
        return await executor.carry_out(planned, cluster, closed=closed)

    return run_in_virtual_time(scenario()), session


def bare(jobs: Any = None, **spec: Any) -> TFCluster:
    """Declare a cluster whose pods do not have a resolver."""
    return make_cluster(jobs or JOBS, resolver={"delivery": "None"}, **spec)


# --- what a rejection blocks


@pytest.mark.parametrize(
    ("refused", "gate", "named", "pods"),
    [
        ("configmaps demo-worker", views_gate("worker"), "ConfigMap demo-worker", {"demo-chief-0", "demo-ps-0"}),
        ("services", SERVICE, "Service demo", set()),
        ("pods demo-worker", pods_gate("worker"), "Pod demo-worker-0", {"demo-chief-0", "demo-ps-0"}),
    ],
)
def test_rejected_object_blocks_only_the_pods_that_need_it(refused, gate, named, pods):
    """The other jobs have all that they need, and the outcome has the server's message."""
    outcome, session = carry_out(InMemoryWorld(), bare(), when(QUOTA, f"POST {refused}"))
    assert session.world.names("Pod") == pods
    assert {"demo-chief", "demo-ps"} <= session.world.names("ConfigMap")
    assert outcome.refused == {gate: Finding(reasons.REJECTED, f"{named}: exceeded quota: objects")}
    assert (outcome.again, outcome.cut_off) == (False, "")
    tried = {one.removeprefix("POST pods ") for one in session.writes("pods")}
    assert {one for one in tried if not named.endswith(one)} - pods <= {"demo-worker-1"}


@pytest.mark.parametrize("refusal", [QUOTA, WEBHOOK])
def test_deletions_continue_though_other_writes_are_rejected(refusal):
    world = settled(bare({"chief": 1, "worker": 4}))
    after = bare({"chief": 1, "worker": 1, "ps": 2}, generation=2)
    outcome, session = carry_out(world, after, when(refusal, "POST", "PATCH"))
    gone = [f"DELETE pods demo-worker-{index}" for index in (3, 2, 1)]
    assert [one for one in session.writes("pods") if one.startswith("DELETE")] == gone
    assert [action.name for action in outcome.actions] == ["demo-worker-3", "demo-worker-2", "demo-worker-1"]
    assert views_gate("worker") in outcome.refused


def test_closed_evidence_holds_up_what_would_destroy_it():
    """While a failure is not recorded, its pod is not replaced and missing pods are not created."""
    cluster = bare({"chief": 1, "worker": 3})
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Failed")
    world.plan(cluster)
    world.now += 2
    world.objects.pop(("Pod", "demo-worker-1"))
    world.edit("Service", "demo", {"spec": {"publishNotReadyAddresses": False}})
    outcome, session = carry_out(world, cluster, closed=(EVIDENCE,))
    assert session.writes("pods") == []
    assert session.writes("services") == ["PATCH services demo"]
    assert [action.name for action in outcome.actions] == ["demo"]


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_rejection_is_reported_with_the_server_message(status):
    refusal = Refusal(status, "Reason", "the server's words")
    outcome, _ = carry_out(InMemoryWorld(), bare({"worker": 1}), when(refusal, "POST pods"))
    finding = Finding(reasons.REJECTED, "Pod demo-worker-0: the server's words")
    assert outcome.refused == {pods_gate("worker"): finding}


def test_unavailable_webhook_is_reported_and_tried_once():
    """A 500 is a response: the reconcile does not wait for a long outage, and continues with the other objects."""
    outcome, session = carry_out(InMemoryWorld(), bare(), when(WEBHOOK, "POST pods demo-chief"))
    assert outcome.refused == {
        pods_gate("chief"): Finding(reasons.REQUEST_FAILED, f"Pod demo-chief-0: {WEBHOOK.message}")
    }
    assert session.writes("pods").count("POST pods demo-chief-0") == 1
    assert session.world.names("Pod") == {"demo-ps-0", "demo-worker-0", "demo-worker-1"}


@pytest.mark.parametrize("status", [429, 503, 504])
def test_server_without_room_is_tried_again(status):
    """A transient error is not a rejection."""
    left = [3]

    def refuse(request: Request) -> Refusal | None:
        if request.brief == "POST pods demo-worker-0" and left[0]:
            left[0] -= 1
            return Refusal(status, "Busy", "later")
        return None

    outcome, session = carry_out(InMemoryWorld(), bare({"worker": 1}), refuse)
    assert outcome.refused == {}
    assert session.writes("pods") == ["POST pods demo-worker-0"] * 4


def test_server_that_does_not_answer_cuts_the_plan_off():
    """The remaining requests are not sent; the outcome says so, and is not an exception."""
    dead = Refusal(cut=aiohttp.ClientConnectionError("no route"))
    outcome, session = carry_out(InMemoryWorld(), bare(), when(dead, "POST services"))
    assert "ClientConnectionError" in outcome.cut_off
    assert outcome.refused[SERVICE].reason == reasons.REQUEST_FAILED
    assert session.world.names("Pod") == set()


def test_deleted_namespace_is_reported():
    gone = Refusal(404, "NotFound", 'namespaces "default" not found')
    outcome, _ = carry_out(InMemoryWorld(), bare({"worker": 1}), when(gone, "POST services"))
    assert outcome.refused == {SERVICE: Finding(reasons.REJECTED, 'Service demo: namespaces "default" not found')}
    assert not outcome.again


def test_closed_fence_blocks_all_writes():
    """Another replica can lead by now: the plan ends with that error before any request."""

    def fence() -> None:
        raise errors.NotLeadingError("the lease is another's")

    world, session = InMemoryWorld(), []
    with pytest.raises(errors.NotLeadingError):
        session.append(carry_out(world, bare(), fence=fence))
    assert world.objects == {}


# --- races


def test_lost_race_is_looked_up_and_planned_again():
    """Another object has our name: it is read afterwards, and the rest of that group was executed."""
    world = InMemoryWorld()
    world.create("Pod", {"metadata": {"name": "demo-worker-0"}, "spec": {"containers": []}})
    cluster = bare({"ps": 1, "worker": 1})
    outcome, _ = carry_out(world, cluster, planned=InMemoryWorld().plan(cluster))  # by an operator that missed it
    assert (outcome.again, outcome.refused) == (True, {})
    assert ("Pod", "demo-worker-0") in world.stores.blocking[cluster.uid]
    assert "demo-ps-0" in world.names("Pod")
    assert [one.reason for one in world.plan(cluster).findings] == [reasons.NAME_TAKEN]


@pytest.mark.parametrize("happens", ["gone", "reborn"])
def test_object_that_changed_under_the_plan_is_left_alone(happens):
    """Its UID is not the expected one: nothing is deleted, and the operator plans again."""
    world = settled(bare({"worker": 2}))
    smaller = bare({"worker": 1}, generation=2)
    planned = world.plan(smaller)
    body = world.objects.pop(("Pod", "demo-worker-1"))
    if happens == "reborn":
        world.create("Pod", body)
    before = world.objects.get(("Pod", "demo-worker-1"))
    outcome, _ = carry_out(world, smaller, planned=planned)
    assert outcome.again
    assert world.objects.get(("Pod", "demo-worker-1")) == before


# --- a dry run of a template

OTHER_IMAGE = merge_patch(TEMPLATE, {"spec": {"containers": [{"name": "task", "image": "image:2"}]}})


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (QUOTA, True),
        (Refusal(400, "BadRequest", 'admission webhook "policy" does not support dry run'), True),
        (Refusal(409, "AlreadyExists", 'pods "demo-worker-0" already exists'), True),
        (Refusal(422, "Invalid", "spec.containers[0].image: Required value"), False),
        (Refusal(403, "Forbidden", 'violates PodSecurity "restricted:latest"'), False),
        (WEBHOOK, False),
    ],
    ids=["quota", "no dry run", "name taken", "invalid", "pod security", "webhook is down"],
)
def test_running_pods_go_only_for_a_template_that_the_server_takes(answer, goes_on):
    """A full quota, an unavailable webhook and a name that exists are not errors of the template."""
    world = settled(bare({"worker": 1}))
    other = bare({"worker": {"replicas": 1, "template": OTHER_IMAGE}}, generation=2, **RECREATE)
    outcome, session = carry_out(world, other, lambda request: answer if "dryRun" in request.params else None)
    assert [one.brief for one in session.requests if "dryRun" in one.params] == ["POST pods demo-worker-0"]
    assert ("DELETE pods demo-worker-0" in session.writes("pods")) is goes_on
    assert list(outcome.refused) == ([] if goes_on else [template_gate("worker")])


# --- cautious groups


def refused_before(tasks: int) -> tuple[InMemoryWorld, TFCluster]:
    """Return a cluster whose pods are all missing, and were rejected at the last attempt."""
    world, cluster = InMemoryWorld(), bare({"worker": tasks})
    world.settle(cluster)
    for index in range(tasks):
        world.objects.pop(("Pod", f"demo-worker-{index}"))
    world.holds = world.holds.after({pods_gate("worker"): Finding("R", "M")}, (), (), world.now).lifted(world.now)
    return world, cluster


class Slow(HttpWorld):
    """A server that takes a second for each response; it records the start of each request."""

    began: list[int]

    def request(self, *of: Any, **more: Any) -> Any:
        exchange = super().request(*of, **more)

        @asynccontextmanager
        async def slow() -> AsyncIterator[Any]:
            self.began.append(int(asyncio.get_running_loop().time()))
            await asyncio.sleep(1)
            async with exchange as response:
                yield response

        return slow()


@virtual
async def test_previously_rejected_group_begins_with_one_request():
    """Then two, then four: a thousand creations that succeed are not much slower."""
    world, cluster = refused_before(20)
    session = Slow(world)
    session.began = []
    client = make_client(session)
    client._limiter = AdaptiveLimiter(start=32.0, elapsed=asyncio.get_running_loop().time)
    outcome = await Executor(client, world.stores, NO_ARCHIVE).carry_out(world.plan(cluster), cluster)
    assert len(outcome.done) == 20
    assert list(Counter(session.began).values()) == [1, 2, 4, 8, 5]


def test_still_rejected_group_costs_one_request():
    world, cluster = refused_before(500)
    outcome, session = carry_out(world, cluster, when(QUOTA, "POST pods"))
    assert len(session.writes("pods")) == 1
    assert set(outcome.refused) == {pods_gate("worker")}


# --- what is written


def test_pod_is_created_strictly_and_under_our_name():
    """Unknown fields are rejected by name, and the pod's managed fields name the operator."""
    _, session = carry_out(InMemoryWorld(), bare({"worker": 1}))
    (created,) = [one for one in session.requests if one.plural == "pods"]
    assert created.params == {"fieldManager": "tfcluster-operator", "fieldValidation": "Strict"}


def test_resolver_is_created_only_where_a_pod_needs_it():
    """A cluster without pods, or with all of its pods, does not need another copy."""
    name = f"POST configmaps {naming.resolver_name(NO_ARCHIVE.digest)}"
    cluster = make_cluster({"worker": 1})

    def created(world: InMemoryWorld, cluster: TFCluster) -> bool:
        session = HttpWorld(world)
        session.clusters["demo"] = make_body({"worker": 1}, suspend=cluster.suspend)
        passes(session, 1)
        return name in session.writes("configmaps")

    assert created(InMemoryWorld(), cluster)
    assert not created(InMemoryWorld(), make_cluster({"worker": 1}, suspend=True))


# --- whole reconciles


def test_partial_plan_requests_its_next_part_immediately(monkeypatch):
    """Until nothing is left, but not while a request is rejected, which would be retried in a tight loop."""
    for module in (actions, story, tasks):
        monkeypatch.setattr(module, "MOST_STEPS", 3)
    session = declared()
    parts = passes(session, 4)
    refused = passes(declared(when(QUOTA, "POST services")), 1)
    assert [isinstance(one, NextPart) for one in parts] == [True, True, True, False]
    assert len([one for one in session.requests if one.brief.startswith("POST pods")]) == 4
    assert not isinstance(refused[0], NextPart)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [(QUOTA, "Rejected"), (WEBHOOK, "RequestFailed"), (Refusal(503, "Busy", "no room"), "RequestFailed")],
)
@pytest.mark.parametrize("what", ["POST pods", "POST services", "POST configmaps", "POST"])
def test_pass_ends_in_a_report_at_the_new_generation(refusal, reason, what):
    """Also if most requests fail: the status has the server's message."""
    session = declared(when(refusal, what))
    (result,) = passes(session, 1)
    status, told, message, generation = ready(session)
    assert (status, told, generation) == ("False", reason, 3)
    assert refusal.message in message
    assert session.clusters["demo"]["status"]["observedGeneration"] == 3
    assert isinstance(result, float)
    assert result <= 1.0


@virtual
async def test_rejected_requests_back_off_and_finally_succeed():
    """A hundred seconds of rejections cost few requests; afterwards, the cluster starts."""
    session = declared(when(QUOTA, "POST pods demo-w"))
    operator = Operator(session)
    await operator.passes(100, every=1)
    tries = sum(one.startswith("POST pods demo-w") for one in session.writes("pods"))
    session.refuse = lambda _: None
    await operator.passes(60, every=1)
    assert 5 <= tries <= 9
    assert session.world.names("Pod") == {"demo-chief-0", "demo-ps-0", "demo-worker-0", "demo-worker-1"}


@virtual
async def test_edit_resets_the_back_off():
    session = declared(when(QUOTA, "POST pods demo-worker"))
    operator = Operator(session)
    await operator.passes(40, every=1)
    known = len(session.requests)
    session.world.version += 1
    edited = {"generation": 4, "resourceVersion": str(session.world.version)}
    session.clusters["demo"] = merge_patch(session.clusters["demo"], {"metadata": edited})
    session.refuse = lambda _: None
    await operator.one_pass()
    created = sorted(one.brief for one in session.requests[known:] if one.brief.startswith("POST pods"))
    assert created == ["POST pods demo-worker-0", "POST pods demo-worker-1"]


def refuse_the_status(request: Request) -> Refusal | None:
    return QUOTA if request.subresource == "status" else None


@virtual
async def test_failure_that_cannot_be_written_down_keeps_its_pod():
    """While the status is rejected, the pod is not replaced; then the count is written first."""
    session = declared()
    operator = Operator(session)
    await operator.come_up()
    session.world.pod_ends("demo-worker-0", "Failed")
    session.refuse = refuse_the_status
    await operator.passes(5, every=2)
    assert not any(one.startswith("PATCH pods demo-worker-0") for one in session.writes("pods"))
    assert "DELETE pods demo-worker-0" not in session.writes("pods")
    session.refuse = lambda _: None
    known = len(session.requests)
    await operator.passes(5, every=2)
    writes = [one.brief for one in session.requests[known:] if one.method != "GET" and one.plural != "events"]
    assert writes.index("PATCH tfclusters demo status") < writes.index("PATCH pods demo-worker-0")
    assert session.clusters["demo"]["status"]["jobs"]["worker"]["restarts"] == 1


@virtual
async def test_lost_pod_is_replaced_while_the_status_is_rejected():
    """No evidence is lost with it; one event says that the status cannot be written, for any duration."""
    session = declared()
    operator = Operator(session)
    await operator.come_up()
    session.refuse = refuse_the_status
    session.world.objects.pop(("Pod", "demo-worker-1"))
    await operator.passes(5, every=2)
    assert "demo-worker-1" in session.world.names("Pod")
    events = [one.body for one in session.requests if one.plural == "events"]
    told = [(one["type"], one["reason"]) for one in events if "status of the TFCluster" in one["message"]]
    assert told == [("Warning", "Rejected")]
