"""The first status of a new cluster: when it is ready, or after a second, or immediately if there is a problem."""

from __future__ import annotations

import asyncio

import pytest
from unit.async_tests import virtual
from unit.http_operator import QUOTA, Operator, declared, ready, when
from unit.http_world import HttpWorld
from unit.in_memory import merge_patch

STATUS = "PATCH tfclusters demo status"


def told(session: HttpWorld) -> list[str]:
    """Return the status writes and the reasons of the events, in order."""
    return [
        request.body["reason"] if request.plural == "events" else request.brief
        for request in session.requests
        if request.plural in {"tfclusters", "events"} and request.method != "GET"
    ]


def _waiting() -> HttpWorld:
    session = declared()
    session.clusters["demo"]["spec"]["jobs"]["worker"]["startAfter"] = ["ps"]
    return session


@virtual
async def test_cluster_that_is_ready_within_a_second_is_reported_once():
    """One status says that it is ready, and one event after it which objects were created."""
    session = declared()
    operator = Operator(session)
    assert (await operator.one_pass()) == pytest.approx(1.0)
    assert told(session) == []
    await asyncio.sleep(0.4)
    session.world.all_pods_run()
    await operator.one_pass()
    assert told(session) == [STATUS, "Created"]
    await operator.passes(3, every=1)
    assert told(session) == [STATUS, "Created"]
    assert ready(session) == ("True", "AllTasksReady", "4 of 4 ready", 3)


@virtual
async def test_cluster_that_stays_pending_is_reported_once_a_second_after_its_objects():
    """Reconciles in between do not delay the status further."""
    session = declared()
    operator = Operator(session)
    await operator.passes(1, every=0.6)
    assert (await operator.one_pass()) == pytest.approx(0.4, abs=0.01)
    assert told(session) == []
    await asyncio.sleep(0.4)
    await operator.passes(1, every=5)
    assert told(session) == [STATUS, "Created"]
    await operator.one_pass()
    assert told(session) == [STATUS, "Created"]
    assert ready(session)[:2] == ("False", "TasksNotReady")


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        (declared(when(QUOTA, "POST pods demo-worker-1")), "Rejected"),
        (declared(suspend=True), "Suspended"),
        (_waiting(), "WaitingForJob"),
        (declared(isolation={"mode": "Nobody"}), "InvalidSpec"),
    ],
)
@virtual
async def test_state_that_needs_attention_is_reported_immediately(session, reason):
    """A rejection, a wait with a reason, and any other state that does not lead to ready pods."""
    await Operator(session).one_pass()
    assert (told(session)[0], ready(session)[1]) == (STATUS, reason)


@virtual
async def test_failure_before_the_first_report_is_written_before_anything_is_done_about_it():
    session = declared()
    operator = Operator(session)
    await operator.passes(1, every=0.2)
    session.world.all_pods_run()
    session.world.pod_ends("demo-worker-1", "Failed")
    await operator.one_pass()
    writes = session.writes("pods", "tfclusters")
    assert next(one for one in writes if not one.startswith("POST")) == STATUS
    assert session.clusters["demo"]["status"]["restarts"] == 1


@virtual
async def test_failure_before_the_first_report_that_cannot_be_written_down_keeps_its_pod():
    session = declared(when(QUOTA, "PATCH tfclusters"), failedPodsHistoryLimit=0)
    operator = Operator(session)
    await operator.one_pass()
    session.world.all_pods_run()
    session.world.pod_ends("demo-worker-1", "Failed")
    await operator.passes(3)
    assert "DELETE pods demo-worker-1" not in session.writes("pods")
    assert "status" not in session.clusters["demo"]


@virtual
async def test_operator_that_finds_existing_objects_reports_immediately():
    """The operator before it crashed during the delay."""
    session = declared()
    await Operator(session).one_pass()
    assert told(session) == []
    await Operator(session).one_pass()
    assert told(session) == [STATUS]
    assert ready(session)[:2] == ("False", "TasksNotReady")


@virtual
async def test_edit_of_a_reported_cluster_is_reported_immediately():
    """The delay is for new clusters only, also if the edit creates pods."""
    session = declared()
    operator = Operator(session)
    await operator.passes(1, every=1)
    await operator.passes(1, every=5)
    session.world.version += 1
    metadata = {"generation": 4, "resourceVersion": str(session.world.version)}
    edit = {"metadata": metadata, "spec": {"jobs": {"worker": {"replicas": 3}}}}
    session.clusters["demo"] = merge_patch(session.clusters["demo"], edit)
    await operator.one_pass()
    first, _, second, *_ = told(session)
    assert (first, second, ready(session)[3]) == (STATUS, STATUS, 4)
