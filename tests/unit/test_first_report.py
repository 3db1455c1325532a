"""A new cluster is reported on once it is ready, or after a second, or at once where there is something to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.virtual_time import run_in_virtual_time
from unit.http_world import HttpWorld
from unit.test_execute import QUOTA, Operator, declared, ready, when

STATUS = "PATCH tfclusters demo status"


def told(session: HttpWorld) -> list[str]:
    """List the status writes and the reasons of the events, in order."""
    return [
        request.body["reason"] if request.plural == "events" else request.brief
        for request in session.requests
        if request.plural in {"tfclusters", "events"} and request.method != "GET"
    ]


def watch(session: HttpWorld, script: Callable[[Operator], Any]) -> list[list[str]]:
    """Play a script; give what had been told each time that it yields."""

    async def scenario() -> list[list[str]]:
        return [told(session) async for _ in script(Operator(session))]

    return run_in_virtual_time(scenario())


def _waiting() -> HttpWorld:
    session = declared()
    session.clusters["demo"]["spec"]["jobs"]["worker"]["startAfter"] = ["ps"]
    return session


def test_cluster_that_is_ready_within_a_second_is_reported_once():
    """One status says that it is ready, and one event after it what was created."""
    session = declared()

    async def script(operator):
        assert (await operator.one_pass()) == pytest.approx(1.0)
        yield
        await asyncio.sleep(0.4)
        session.world.all_pods_run()
        await operator.one_pass()
        yield
        for _ in range(3):
            await asyncio.sleep(1)
            await operator.one_pass()
        yield

    assert watch(session, script) == [[], [STATUS, "Created"], [STATUS, "Created"]]
    assert ready(session) == ("True", "AllTasksReady", "4 of 4 ready", 3)


def test_cluster_that_stays_pending_is_reported_once_a_second_after_its_objects():
    """Passes in between put the report off no further."""
    session = declared()

    async def script(operator):
        await operator.one_pass()
        await asyncio.sleep(0.6)
        assert (await operator.one_pass()) == pytest.approx(0.4, abs=0.01)
        yield
        await asyncio.sleep(0.4)
        await operator.one_pass()
        yield
        await asyncio.sleep(5)
        await operator.one_pass()
        yield

    assert watch(session, script) == [[], [STATUS, "Created"], [STATUS, "Created"]]
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
def test_what_people_must_know_is_reported_at_once(session, reason):
    """A refusal, a wait with a name, and whatever else is not on its way."""

    async def script(operator):
        await operator.one_pass()
        yield

    ((first, *_),) = watch(session, script)
    assert (first, ready(session)[1]) == (STATUS, reason)


def test_failure_before_the_first_report_is_written_before_anything_is_done_about_it():
    """Evidence waits for nobody."""
    session = declared()

    async def script(operator):
        await operator.one_pass()
        await asyncio.sleep(0.2)
        session.world.all_pods_run()
        session.world.pod_ends("demo-worker-1", "Failed")
        await operator.one_pass()
        yield

    watch(session, script)
    writes = session.writes("pods", "tfclusters")
    assert next(one for one in writes if not one.startswith("POST")) == STATUS
    assert session.clusters["demo"]["status"]["restarts"] == 1


def test_failure_before_the_first_report_that_cannot_be_written_down_keeps_its_pod():
    """As later in the cluster's life."""
    session = declared(when(QUOTA, "PATCH tfclusters"), failedPodsHistoryLimit=0)

    async def script(operator):
        await operator.one_pass()
        session.world.all_pods_run()
        session.world.pod_ends("demo-worker-1", "Failed")
        for _ in range(3):
            await operator.one_pass()
            await asyncio.sleep(1.5)
        yield

    watch(session, script)
    assert "DELETE pods demo-worker-1" not in session.writes("pods")
    assert "status" not in session.clusters["demo"]


def test_operator_that_finds_the_objects_there_reports_at_once():
    """The one before it died while it put the report off."""
    session = declared()

    async def script(operator):
        await operator.one_pass()
        yield
        await Operator(session).one_pass()
        yield

    assert watch(session, script) == [[], [STATUS]]
    assert ready(session)[:2] == ("False", "TasksNotReady")


def test_edit_of_a_cluster_that_was_reported_on_is_reported_at_once():
    """The delay is for new clusters alone, also where the edit creates pods."""
    session = declared()

    async def script(operator):
        await operator.one_pass()
        await asyncio.sleep(1)
        await operator.one_pass()
        await asyncio.sleep(5)
        body = session.clusters["demo"]
        session.world.version += 1
        metadata = {**body["metadata"], "generation": 4, "resourceVersion": str(session.world.version)}
        jobs = {**body["spec"]["jobs"], "worker": {**body["spec"]["jobs"]["worker"], "replicas": 3}}
        session.clusters["demo"] = {**body, "metadata": metadata, "spec": {**body["spec"], "jobs": jobs}}
        await operator.one_pass()
        yield

    ((first, _, second, *_),) = watch(session, script)
    assert (first, second, ready(session)[3]) == (STATUS, STATUS, 4)
