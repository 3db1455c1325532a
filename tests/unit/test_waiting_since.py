"""Since when a cluster waits for quota or for the places of a gang: in its status, and for the metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.in_memory import NOW, InMemoryWorld, make_body

from tfcluster_operator.engine.journal import Account, Journal
from tfcluster_operator.kube.metrics import Metrics
from tfcluster_operator.model import reasons
from tfcluster_operator.model.actions import Finding
from tfcluster_operator.model.conditions import by_type
from tfcluster_operator.model.ledger import timestamp
from tfcluster_operator.model.parse import parse
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.status import deleting_status, invalid_status, status_of


class Waiter:
    """A gang of three workers in a queue, the operator's passes over it, and what the status says after each."""

    def __init__(self) -> None:
        self.world = InMemoryWorld()
        self.status: dict[str, Any] = {}
        self.account = Account()
        self._journal = Journal(Metrics(), lambda: 0.0)

    def declared(self) -> TFCluster:
        body = make_body({"worker": 3}, scheduling={"gang": {}}, status=self.status)
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
        return parse(body)

    def passes(self, *also: Finding) -> str | None:
        """Let the operator pass until nothing is left to do, find this too, and give status.waitingSince."""
        for _ in range(3):
            cluster = self.declared()
            planned = self.world.plan(cluster)
            self.world.apply_all(planned.actions, cluster)
            roster, ledger = self.world.roster(cluster), self.world.ledger
            self.status = status_of(roster, ledger, planned.views, (*planned.findings, *also), self.world.now)
            self._journal.pass_ends(self.account, roster, ledger, self.status, self.world.now)
        return self.status.get("waitingSince")


def test_one_wait_has_one_beginning():
    """It stays while the cluster waits for the same; quota first, and then places, are two waits."""
    waiter = Waiter()
    assert waiter.passes() == timestamp(NOW)
    waiter.world.now += 500.0
    assert waiter.passes() == timestamp(NOW)
    waiter.world.quota_is_granted("tfcluster-demo.0")
    assert waiter.passes() is None
    waiter.world.gang_waits("demo.0", "no room")
    assert waiter.passes() == timestamp(NOW + 500.0)
    waiter.world.now += 500.0
    assert waiter.passes() == timestamp(NOW + 500.0)
    assert waiter.account.placed_at == NOW + 500.0

    waiter.world.now += 500.0
    waiter.world.gang_is_placed("demo.0")
    assert waiter.passes() is None
    assert waiter.account.placed_at == NOW + 1500.0
    waiter.world.now += 500.0
    assert waiter.passes() is None
    assert waiter.account.placed_at == NOW + 1500.0


def test_next_wait_has_its_own_beginning():
    """A cluster that loses its quota waits again, from then on."""
    waiter = Waiter()
    waiter.passes()
    waiter.world.quota_is_granted("tfcluster-demo.0")
    waiter.passes()
    waiter.world.gang_is_placed("demo.0")
    waiter.passes()
    waiter.world.now += 500.0
    waiter.world.quota_is_taken_back("tfcluster-demo.0")
    assert waiter.passes() == timestamp(NOW + 500.0)


def test_what_hides_a_wait_does_not_end_it():
    """Ready tells of a refusal first; the wait goes on all the same."""
    waiter = Waiter()
    waiter.passes()
    waiter.world.now += 500.0
    assert waiter.passes(Finding(reasons.REJECTED, "quota of Services")) == timestamp(NOW)
    assert by_type(waiter.status)["Ready"]["reason"] == "Rejected"


@pytest.mark.parametrize("reason", [reasons.QUEUE_UNAVAILABLE, reasons.GANG_UNAVAILABLE])
def test_wait_goes_on_while_nobody_can_be_asked(reason: str):
    """An outage of Kueue begins no wait and ends none."""
    waiter = Waiter()
    waiter.passes()
    since, findings = waiter.status["waitingSince"], (Finding(reason, "not served"),)
    cluster = waiter.declared()
    planned = waiter.world.plan(cluster)
    for before, after in (({}, None), ({"waitingSince": since}, since)):
        old = replace(cluster, status={**{k: v for k, v in cluster.status.items() if k != "waitingSince"}, **before})
        roster = replace(waiter.world.roster(cluster), cluster=old)
        told = status_of(roster, waiter.world.ledger, planned.views, findings, NOW + 500.0)
        assert told.get("waitingSince") == after


def test_cluster_that_leaves_or_cannot_be_read_waits_for_nothing():
    """What is kept of its old status does not say that it waits."""
    waiter = Waiter()
    waiter.passes()
    leaving = deleting_status(waiter.status, generation=1, now=NOW)
    wrong = invalid_status(waiter.status, generation=1, problems=["spec.jobs: there is none"], now=NOW)
    assert "waitingSince" not in {*leaving, *wrong}
    assert {"ready", "jobs"} <= leaving.keys() & wrong.keys()
