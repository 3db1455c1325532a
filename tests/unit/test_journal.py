"""What passes leave in the metrics and in the log, pass by pass and second by second, over the world of http_world."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.metrics import Scrape
from support.virtual_time import run_in_virtual_time
from unit.http_world import HttpWorld, Refusal
from unit.in_memory import make_body, timestamp
from unit.test_execute import JOBS, KEY, QUOTA, Operator, declared, when

from tfcluster_operator.engine.figures import figures_of
from tfcluster_operator.engine.journal import Journal
from tfcluster_operator.kube.metrics import Figures, Metrics


class Told:
    """An operator of one TFCluster, its metrics, and its log."""

    def __init__(self, session: HttpWorld) -> None:
        self.operator = Operator(session)
        self.session = session
        self.metrics = Metrics()
        self.operator.reconciler._journal = Journal(self.metrics, asyncio.get_running_loop().time)

    async def passes(self, count: int, *, every: float = 1.5) -> None:
        for _ in range(count):
            await self.operator.one_pass()
            await asyncio.sleep(every)

    def edit(self, **spec: Any) -> None:
        """Edit the TFCluster and its generation, as the API server does."""
        body = self.session.clusters["demo"]
        metadata = {**body["metadata"], "generation": body["metadata"]["generation"] + 1}
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1_000)
        self.session.clusters["demo"] = {**body, "metadata": metadata, "spec": {**body["spec"], **spec}}

    def hear(self) -> None:
        """Take in the event of an edit, before the pass over it."""
        body = self.session.clusters["demo"]
        self.operator.parents.put(body)
        self.operator.reconciler.heard_of(KEY, body["metadata"]["uid"])

    def mark(self, **metadata: Any) -> None:
        """Change the TFCluster's metadata."""
        self.edit()
        self.session.clusters["demo"]["metadata"].update(metadata)

    def figures(self) -> Figures:
        reconciler = self.operator.reconciler
        return figures_of(self.operator.parents, reconciler.report_of, (0, 0.0), self.operator.clock.wall())

    def grown(self, name: str) -> dict[tuple[str, ...], float]:
        return Scrape(self.metrics.exposition("")[0].decode()).not_zero(name)


def play(session: HttpWorld, script: Callable[[Told], Any]) -> Any:
    async def scenario() -> Any:
        return await script(Told(session))

    return run_in_virtual_time(scenario())


ALL_STARTING = {("chief", "starting"): 1, ("ps", "starting"): 1, ("worker", "starting"): 2}


def test_report_that_cannot_be_written_is_told_all_the_same():
    """While the API server refuses the status, the metrics tell what is true, and the log says so once."""

    async def script(told: Told) -> Figures:
        await told.passes(4)
        return told.figures()

    figures = play(declared(when(QUOTA, "PATCH tfclusters")), script)

    assert figures.not_ready == {("TasksNotReady",): 1}
    assert figures.conditions["Ready", "False"] == 1
    assert figures.tasks == ALL_STARTING


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.mark(deletionTimestamp=timestamp(0.0), finalizers=["keep"]),
        lambda told: told.edit(jobs={"worker": {"replicas": "two"}}),
    ],
    ids=["being deleted", "invalid"],
)
def test_tasks_that_are_not_looked_after_are_not_counted(change):
    """The TFCluster itself is counted for as long as it is there."""

    async def script(told: Told) -> tuple[Figures, Figures]:
        await told.passes(2)
        before = told.figures()
        change(told)
        await told.passes(2)
        return before, told.figures()

    before, after = play(declared(), script)

    assert (before.tasks, after.tasks) == (ALL_STARTING, {})
    assert sum(after.conditions[("Ready", status)] for status in ("True", "False")) == 1


def test_cluster_of_another_controller_is_not_counted():
    """A TFCluster that spec.managedBy hands to somebody else is none of ours."""

    async def script(told: Told) -> Figures:
        told.operator.parents.put(make_body(JOBS, managedBy="example.test/other"))
        return told.figures()

    assert play(declared(), script) == Figures()


def test_delivery_lasts_from_the_edit_until_the_last_pod_is_told():
    """An edit is heard, its view is refused for a while, then told: the time between is one delivery, to the second."""
    broken = [False]
    session = declared(lambda one: QUOTA if broken[0] and one.brief.startswith("PATCH pods") else None)

    async def script(told: Told) -> tuple[float, dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
        await told.passes(2)
        assert told.grown("tfcluster_view_delivery_seconds_count") == {}
        broken[0] = True
        told.edit(jobs=make_body({**JOBS, "worker": 3})["spec"]["jobs"])
        began = asyncio.get_running_loop().time()
        told.hear()
        await asyncio.sleep(5)  # other clusters have their turn first
        await told.passes(3, every=1.0)
        assert told.figures().undelivered_oldest >= 2
        broken[0] = False
        while not told.grown("tfcluster_view_delivery_seconds_count"):
            ended = asyncio.get_running_loop().time()
            await told.passes(1, every=1.0)
        await told.passes(3)
        assert told.figures().undelivered_oldest == 0
        counted = told.grown("tfcluster_view_delivery_seconds_count"), told.grown("tfcluster_view_delivery_seconds_sum")
        return ended - began, *counted

    seconds, count, total = play(session, script)

    assert count == {(): 1}
    assert total[()] == pytest.approx(seconds, abs=0.1)
    assert seconds >= 8


def test_epochs_are_counted_once_by_whoever_takes_over():
    """An operator that starts again counts no epoch that its predecessor published."""
    session = declared()

    async def script(told: Told) -> list[dict[tuple[str, ...], float]]:
        await told.passes(2)
        told.edit(jobs=make_body({**JOBS, "worker": 3})["spec"]["jobs"])
        await told.passes(2)
        successor = Told(session)
        await successor.passes(2)
        return [one.grown("tfcluster_epochs_total") for one in (told, successor)]

    assert play(session, script) == [{(): 2}, {}]


def test_what_goes_on_being_refused_is_logged_once(caplog):
    """A refusal that lasts is one warning; another one is told, and one after an edit; none quotes a value."""
    refusal = Refusal(422, "Invalid", 'env: Invalid value: "SECRET"')
    session = declared(when(refusal, "POST pods demo-worker", "PATCH tfclusters"))

    async def script(told: Told) -> None:
        await told.passes(60, every=1.0)
        session.refuse = when(refusal, "POST pods demo-worker", "PATCH tfclusters", "POST pods demo-ps")
        session.world.objects.pop(("Pod", "demo-ps-0"))
        await told.passes(60, every=1.0)
        told.edit(backoffLimit=3)
        await told.passes(60, every=1.0)
        assert len(told.operator.reconciler._memories[KEY].account.refused) == 2, "what is over is forgotten"

    with caplog.at_level(logging.WARNING):
        play(session, script)

    told = [record.getMessage() for record in caplog.records]
    assert [words for words in told if words.startswith("the status")] == [
        'the status cannot be written: 422 Invalid: env: Invalid value: "…"'
    ]
    first, second, *edited = re.findall(r"Rejected: Pod demo-(\w+)", " ".join(told))
    assert (first, second, sorted(edited)) == ("worker", "ps", ["ps", "worker"])
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize("limit", [0, 1], ids=["no failed pod is kept", "one failed pod is kept"])
def test_pods_that_restart_together_are_counted_once_each(limit):
    """The pod that failed is one of them, whether it is deleted or kept for its log."""
    session = declared()
    jobs = {"worker": {"replicas": 3, "restartScope": "Job"}}
    session.clusters["demo"] = make_body(jobs, generation=3, failedPodsHistoryLimit=limit)

    async def script(told: Told) -> dict[tuple[str, ...], float]:
        await told.passes(2)
        session.world.all_pods_run()
        await told.passes(2)
        session.world.pod_ends("demo-worker-1", "Failed")
        await told.passes(12)
        assert len(session.world.names("Pod")) == 3 + limit
        return told.grown("tfcluster_pod_replacements_total")

    assert play(session, script) == {("RestartedTogether",): 3}
