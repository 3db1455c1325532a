"""The effect of reconciles on metrics and log, second by second, over the world of http_world."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest
from support.metrics import Scrape
from unit.async_tests import virtual
from unit.http_operator import JOBS, KEY, QUOTA, Operator, declared, when
from unit.http_world import HttpWorld, Refusal
from unit.in_memory import make_body, timestamp

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
        await self.operator.passes(count, every=every)

    def edit(self, **spec: Any) -> None:
        """Edit the TFCluster and its generation, as the API server does."""
        body = self.session.clusters["demo"]
        metadata = {**body["metadata"], "generation": body["metadata"]["generation"] + 1}
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1_000)
        self.session.clusters["demo"] = {**body, "metadata": metadata, "spec": {**body["spec"], **spec}}

    def hear(self) -> None:
        """Receive the event of an edit, before its reconcile."""
        body = self.session.clusters["demo"]
        self.operator.parents.put(body)
        self.operator.reconciler.heard_of(KEY, body["metadata"]["uid"])

    def mark(self, **metadata: Any) -> None:
        self.edit()
        self.session.clusters["demo"]["metadata"].update(metadata)

    def figures(self) -> Figures:
        reconciler = self.operator.reconciler
        return figures_of(self.operator.parents, reconciler.report_of, (0, 0.0), self.operator.clock.wall())

    def grown(self, name: str) -> dict[tuple[str, ...], float]:
        return Scrape(self.metrics.exposition("")[0].decode()).not_zero(name)


ALL_STARTING = {("chief", "starting"): 1, ("ps", "starting"): 1, ("worker", "starting"): 2}


@virtual
async def test_unwritable_status_is_still_reported_in_metrics_and_log():
    """While the API server rejects the status, the metrics have the true state, and the log says so once."""
    told = Told(declared(when(QUOTA, "PATCH tfclusters")))
    await told.passes(4)
    figures = told.figures()
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
@virtual
async def test_tasks_that_are_not_looked_after_are_not_counted(change):
    told = Told(declared())
    await told.passes(2)
    before = told.figures()
    change(told)
    await told.passes(2)
    after = told.figures()
    assert (before.tasks, after.tasks) == (ALL_STARTING, {})
    assert sum(after.conditions[("Ready", status)] for status in ("True", "False")) == 1


@virtual
async def test_cluster_of_another_controller_is_not_counted():
    """spec.managedBy gives the TFCluster to another controller."""
    told = Told(declared())
    told.operator.parents.put(make_body(JOBS, managedBy="example.test/other"))
    assert told.figures() == Figures()


@virtual
async def test_delivery_lasts_from_the_edit_until_the_last_pod_is_notified():
    """After an edit, its view is rejected for a while, then delivered: both are one delivery, to the second."""
    broken = [False]
    session = declared(lambda one: QUOTA if broken[0] and one.brief.startswith("PATCH pods") else None)
    told = Told(session)
    await told.passes(2)
    assert told.grown("tfcluster_view_delivery_seconds_count") == {}
    broken[0] = True
    told.edit(jobs=make_body({**JOBS, "worker": 3})["spec"]["jobs"])
    began = asyncio.get_running_loop().time()
    told.hear()
    await asyncio.sleep(5)  # other clusters are reconciled first
    await told.passes(3, every=1.0)
    assert told.figures().undelivered_oldest >= 2
    broken[0] = False
    while not told.grown("tfcluster_view_delivery_seconds_count"):
        ended = asyncio.get_running_loop().time()
        await told.passes(1, every=1.0)
    await told.passes(3)
    assert told.figures().undelivered_oldest == 0
    assert told.grown("tfcluster_view_delivery_seconds_count") == {(): 1}
    assert told.grown("tfcluster_view_delivery_seconds_sum")[()] == pytest.approx(ended - began, abs=0.1)
    assert ended - began >= 8


@virtual
async def test_epochs_are_counted_once_by_an_operator_that_takes_over():
    session = declared()
    told = Told(session)
    await told.passes(2)
    told.edit(jobs=make_body({**JOBS, "worker": 3})["spec"]["jobs"])
    await told.passes(2)
    successor = Told(session)
    await successor.passes(2)
    assert [one.grown("tfcluster_epochs_total") for one in (told, successor)] == [{(): 2}, {}]


@virtual
async def test_permanent_rejection_is_logged_once(caplog):
    """A permanent rejection is one warning; another one is logged, and one after an edit; no warning quotes a value."""
    refusal = Refusal(422, "Invalid", 'env: Invalid value: "SECRET"')
    session = declared(when(refusal, "POST pods demo-worker", "PATCH tfclusters"))
    caplog.set_level(logging.WARNING)
    told = Told(session)
    await told.passes(60, every=1.0)
    session.refuse = when(refusal, "POST pods demo-worker", "PATCH tfclusters", "POST pods demo-ps")
    session.world.objects.pop(("Pod", "demo-ps-0"))
    await told.passes(60, every=1.0)
    told.edit(backoffLimit=3)
    await told.passes(60, every=1.0)
    assert len(told.operator.reconciler._memories[KEY].account.refused) == 2, "what is over is forgotten"
    lines = [record.getMessage() for record in caplog.records]
    assert [words for words in lines if words.startswith("the status")] == [
        'the status cannot be written: 422 Invalid: env: Invalid value: "…"'
    ]
    first, second, *edited = re.findall(r"Rejected: Pod demo-(\w+)", " ".join(lines))
    assert (first, second, sorted(edited)) == ("worker", "ps", ["ps", "worker"])
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize("limit", [0, 1], ids=["no failed pod is kept", "one failed pod is kept"])
@virtual
async def test_pods_that_restart_together_are_counted_once_each(limit):
    """The failed pod is one of them, whether it is deleted or kept for its log."""
    session = declared()
    jobs = {"worker": {"replicas": 3, "restartScope": "Job"}}
    session.clusters["demo"] = make_body(jobs, generation=3, failedPodsHistoryLimit=limit)
    told = Told(session)
    await told.passes(2)
    session.world.all_pods_run()
    await told.passes(2)
    session.world.pod_ends("demo-worker-1", "Failed")
    await told.passes(12)
    assert len(session.world.names("Pod")) == 3 + limit
    assert told.grown("tfcluster_pod_replacements_total") == {("RestartedTogether",): 3}
