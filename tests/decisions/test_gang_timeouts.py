"""Gangs that exceed their timeout: spec.scheduling.gang.timeoutSeconds and onTimeout."""

from collections.abc import Mapping
from dataclasses import replace
from operator import methodcaller as does
from typing import Any

import pytest
from decisions.in_memory import NOW, InMemoryWorld, make_body, make_cluster

from tfcluster_operator.declaration import ledger, reasons
from tfcluster_operator.declaration.ledger import FAILED, timestamp
from tfcluster_operator.declaration.parse import parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.engine.journal import Account, Journal
from tfcluster_operator.kube.metrics import Metrics
from tfcluster_operator.plan.actions import Finding
from tfcluster_operator.report import conditions
from tfcluster_operator.report.conditions import by_type
from tfcluster_operator.report.status import status_of, unreconciled_status

_WORDS = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"


def gang(
    jobs: Mapping[str, Any] | None = None, *, on_timeout: str = "Fail", timeout: int = 600, **spec: Any
) -> TFCluster:
    waits = {"timeoutSeconds": timeout, "onTimeout": on_timeout}
    return make_cluster(jobs or {"worker": 3}, scheduling={"gang": waits}, **spec)


def passes(world: InMemoryWorld, cluster: TFCluster, count: int = 2) -> None:
    for _ in range(count):
        world.end_graceful_deletions()
        world.apply_all(world.plan(cluster).actions, cluster)


def waiting(cluster: TFCluster) -> InMemoryWorld:
    """Build a world with a waiting gang of all tasks and a message of the scheduler."""
    world = InMemoryWorld()
    passes(world, cluster)
    world.gang_waits("demo.0", _WORDS)
    return world


def written(world: InMemoryWorld, cluster: TFCluster) -> dict[str, Any]:
    planned = world.plan(cluster)
    return status_of(world.roster(cluster), world.ledger, planned.views, planned.findings, world.now)


def told(world: InMemoryWorld, cluster: TFCluster) -> dict[str, tuple[str, str, str]]:
    """Return status, reason and message of each condition."""
    said = conditions.by_type(written(world, cluster))
    return {kind: (one["status"], one["reason"], one["message"]) for kind, one in said.items()}


def test_cluster_fails_when_its_gang_has_waited_for_too_long():
    cluster = gang()
    world = waiting(cluster)
    planned = world.plan(cluster)
    assert (world.ledger.verdict, planned.wake_after) == (None, 600.0)
    world.now += 599.0
    assert world.plan(cluster).wake_after == 1.0
    world.now += 1.0
    world.plan(cluster)
    verdict = world.ledger.verdict
    assert verdict is not None
    assert (verdict.kind, verdict.reason) == (FAILED, reasons.GANG_TIMEOUT)
    limit = "spec.scheduling.gang.timeoutSeconds, 600 s"
    assert verdict.message == f"gang demo.0: its 3 tasks could not be scheduled within {limit}: {_WORDS}"
    passes(world, cluster)
    assert world.names("Pod") == world.names("PodGroup") == set()
    assert told(world, cluster)["Ready"][:2] == ("False", reasons.GANG_TIMEOUT)


def test_edit_tries_again_with_the_whole_time():
    cluster = gang(on_timeout="Suspend")
    world = waiting(cluster)
    world.now += 600.0
    cluster = gang(on_timeout="Suspend", status=written(world, cluster))
    passes(world, cluster)
    cluster = gang(on_timeout="Suspend", status=written(world, cluster), generation=2)
    passes(world, cluster)
    assert (world.ledger.gave_up, len(world.names("Pod"))) == (None, 3)
    assert world.ledger.gangs == {"demo.1": world.now}
    assert told(world, cluster)["Suspended"][1] == reasons.NOT_SUSPENDED


AFTER_PS = {"ps": 1, "worker": {"replicas": 2, "startAfter": ["ps"]}}
RESTARTS = {"worker": {"replicas": 2, "restartScope": "Job"}}
PLACED, LOST = does("gang_is_placed", "demo.0"), does("delete", "Pod", "demo-worker-0", force=True)
FAILS = does("pod_ends", "demo-worker-0", "Failed")


@pytest.mark.parametrize(
    ("jobs", "steps", "waiting_since"),
    [
        (None, [], {"demo.0": 0.0}),
        # The timeout does not apply to a task that is lost later.
        (None, [300.0, PLACED], {}),
        (None, [300.0, PLACED, LOST, 100_000.0], {}),
        # For a job that starts after others, the time starts when these are ready.
        (AFTER_PS, [], {"demo.0": 0.0}),
        (AFTER_PS, [500.0, PLACED], {"demo.worker.0": 500.0}),
        # Tasks that restart together wait in another round, after their back-off.
        (RESTARTS, [PLACED, FAILS], {}),
        (RESTARTS, [PLACED, FAILS, "pause"], {"demo.1": "pause"}),
    ],
)
def test_time_counts_from_when_the_tasks_of_a_gang_may_start(jobs, steps, waiting_since):
    cluster = gang(jobs)
    world = waiting(cluster)
    passes(world, cluster)
    times = {"pause": 0.0}
    for step in steps:
        if step == "pause":
            times["pause"] = world.ledger.of("worker").restart_at - NOW
            assert times["pause"] > 0.0
            world.now = NOW + times["pause"]
        elif isinstance(step, float):
            world.now += step
        else:
            step(world)
        passes(world, cluster, 3)
    assert world.ledger.gangs == {name: NOW + times.get(since, since) for name, since in waiting_since.items()}
    assert world.ledger.verdict is None


def test_server_without_groups_counts_as_waiting():
    cluster = gang()
    world = InMemoryWorld()
    world.stores.of["PodGroup"].have_none("the API server does not serve podgroups", None)
    passes(world, cluster)
    world.now += 600.0
    world.plan(cluster)
    assert world.ledger.verdict is not None
    assert world.ledger.verdict.message.endswith("600 s: the API server does not serve podgroups")


def test_what_is_known_survives_the_operator():
    cluster = gang()
    world = waiting(cluster)
    world.now += 400.0
    known = ledger.read(written(world, cluster))
    assert known.gangs == {"demo.0": world.now - 400.0}
    world.ledger = ledger.Ledger(gangs={"demo.0": world.now + 5_000.0})
    world.plan(cluster)
    assert world.ledger.gangs == {"demo.0": world.now}


def test_longer_timeout_takes_effect_immediately():
    world = waiting(gang())
    world.now += 590.0
    assert world.plan(gang(timeout=700, generation=2)).wake_after == 110.0


def test_gang_timeout_starts_after_quota_is_granted():
    queued = make_body({"worker": 3}, scheduling={"gang": {"timeoutSeconds": 600, "onTimeout": "Suspend"}}, status={})
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    world = InMemoryWorld()
    passes(world, parse(queued))
    world.now += 100_000.0
    world.plan(parse(queued))
    assert world.ledger.gangs == {}
    world.quota_is_granted("tfcluster-demo.0")
    passes(world, parse(queued))
    assert world.ledger.gangs == {"demo.0": world.now}
    world.now += 600.0
    queued["status"] = written(world, parse(queued))
    passes(world, parse(queued), 4)
    assert world.names("Pod") == world.names("Workload") == set()
    assert told(world, parse(queued))["Suspended"][1] == reasons.GANG_TIMEOUT


def test_without_a_limit_no_time_is_noted():
    cluster = make_cluster({"worker": 3}, scheduling={"gang": {}})
    world = waiting(cluster)
    assert world.plan(cluster).wake_after is None
    assert "gangs" not in written(world, cluster)["internal"]


# --- since when a cluster waits, in its status and for the metrics
class Waiter:
    """A gang of three workers in a queue, the operator's reconciles, and the status after each."""

    def __init__(self) -> None:
        self.world = InMemoryWorld()
        self.status: dict[str, Any] = {}
        self.account = Account()
        self._journal = Journal(Metrics())

    def declared(self) -> TFCluster:
        body = make_body({"worker": 3}, scheduling={"gang": {}}, status=self.status)
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
        return parse(body)

    def passes(self, *also: Finding) -> str | None:
        """Reconcile until nothing is left to do, and until this is observed; return status.waitingSince."""
        for _ in range(3):
            cluster = self.declared()
            planned = self.world.plan(cluster)
            self.world.apply_all(planned.actions, cluster)
            roster, ledger = self.world.roster(cluster), self.world.ledger
            self.status = status_of(roster, ledger, planned.views, (*planned.findings, *also), self.world.now)
            self._journal.pass_ends(self.account, cluster, self.status, self.world.now)
        return self.status.get("waitingSince")


def test_each_wait_has_one_beginning():
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
    waiter.world.quota_is_taken_back("tfcluster-demo.0")
    assert waiter.passes() == timestamp(NOW + 2000.0)


def test_what_hides_a_wait_does_not_end_it():
    waiter = Waiter()
    waiter.passes()
    waiter.world.now += 500.0
    assert waiter.passes(Finding(reasons.REJECTED, "quota of Services")) == timestamp(NOW)
    assert by_type(waiter.status)["Ready"]["reason"] == "Rejected"


@pytest.mark.parametrize("reason", [reasons.QUEUE_UNAVAILABLE, reasons.GANG_UNAVAILABLE])
def test_waiting_since_is_kept_while_the_queue_is_unavailable(reason: str):
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


def test_cluster_that_is_not_reconciled_waits_for_nothing():
    waiter = Waiter()
    waiter.passes()
    left = unreconciled_status(waiter.declared(), reasons.DELETING, "it leaves", NOW)
    assert "waitingSince" not in left
    assert {"readyTasks", "jobs"} <= left.keys()
