"""Gangs that wait for too long: spec.scheduling.gang.timeoutSeconds and onTimeout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from unit.in_memory import InMemoryWorld, make_body, make_cluster

from tfcluster_operator.model import conditions, ledger, reasons
from tfcluster_operator.model.actions import Delete
from tfcluster_operator.model.ledger import FAILED, GaveUp
from tfcluster_operator.model.parse import InvalidSpecError, parse
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.status import status_of

_WORDS = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"


def gang(
    jobs: Mapping[str, Any] | None = None, *, on_timeout: str = "Fail", timeout: int = 600, **spec: Any
) -> TFCluster:
    """Make a cluster whose gang may wait for ten minutes."""
    waits = {"timeoutSeconds": timeout, "onTimeout": on_timeout}
    return make_cluster(jobs or {"worker": 3}, scheduling={"gang": waits}, **spec)


def passes(world: InMemoryWorld, cluster: TFCluster, count: int = 2) -> None:
    """Plan and carry out, without a wait in between."""
    for _ in range(count):
        world.end_graceful_deletions()
        world.apply_all(world.plan(cluster).actions, cluster)


def waiting(cluster: TFCluster) -> InMemoryWorld:
    """Make a world in which the gang of all tasks waits, and the scheduler says why."""
    world = InMemoryWorld()
    passes(world, cluster)
    world.gang_waits("demo.0", _WORDS)
    return world


def written(world: InMemoryWorld, cluster: TFCluster) -> dict[str, Any]:
    """Give the status as the operator writes it."""
    planned = world.plan(cluster)
    return status_of(world.roster(cluster), world.ledger, planned.views, planned.findings, world.now)


def told(world: InMemoryWorld, cluster: TFCluster) -> dict[str, tuple[str, str, str]]:
    """Give status, reason and message of each condition."""
    said = conditions.by_type(written(world, cluster))
    return {kind: (one["status"], one["reason"], one["message"]) for kind, one in said.items()}


def test_cluster_fails_when_its_gang_has_waited_for_too_long():
    """Not a second before, and it says which gang waited for what."""
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
    assert verdict.message == f"gang demo.0 found no room for its 3 tasks within {limit}: {_WORDS}"

    passes(world, cluster)
    assert world.names("Pod") == world.names("PodGroup") == set()
    assert told(world, cluster)["Ready"][:2] == ("False", reasons.GANG_TIMEOUT)


def test_cluster_is_suspended_when_its_gang_has_waited_for_too_long():
    """Its pods and its PodGroup go, and it says why; what was written down is what it goes by."""
    cluster = gang(on_timeout="Suspend")
    world = waiting(cluster)
    world.now += 600.0
    planned = world.plan(cluster)
    assert not any(isinstance(one, Delete) for one in planned.actions), "nothing goes before it is written down"
    assert planned.wake_after == 0.5
    assert world.ledger.holds_evidence(ledger.Ledger())
    assert world.ledger.verdict is None

    cluster = gang(on_timeout="Suspend", status=written(world, cluster))
    deleted = [one for one in world.plan(cluster).actions if isinstance(one, Delete) and one.kind == "Pod"]
    assert {one.reason for one in deleted} == {reasons.GANG_TIMEOUT}
    passes(world, cluster, 3)
    assert world.names("Pod") == world.names("PodGroup") == set()
    assert world.plan(cluster).actions == ()
    said = told(world, cluster)
    message = said["Ready"][2]
    assert message.endswith(f"{_WORDS}; edit it, or suspend and resume it, and it tries again")
    assert said["Ready"] == ("False", reasons.GANG_TIMEOUT, message)
    assert said["Suspended"] == said["Stalled"] == ("True", reasons.GANG_TIMEOUT, message)


def test_edit_tries_again_with_the_whole_time():
    """Each generation of the spec gives up for itself."""
    cluster = gang(on_timeout="Suspend")
    world = waiting(cluster)
    world.now += 600.0
    cluster = gang(on_timeout="Suspend", status=written(world, cluster))
    passes(world, cluster)

    cluster = gang(on_timeout="Suspend", status=written(world, cluster), generation=2)
    world.plan(cluster)
    assert world.ledger.gave_up is None
    passes(world, cluster)
    assert len(world.names("Pod")) == 3
    assert world.ledger.gangs == {"demo.1": world.now}
    assert told(world, cluster)["Suspended"][1] == reasons.NOT_SUSPENDED


def test_gang_with_places_has_no_limit_any_more():
    """A task that is lost later may wait for its node as long as it takes."""
    cluster = gang()
    world = waiting(cluster)
    world.now += 300.0
    world.gang_is_placed("demo.0")
    passes(world, cluster)
    assert world.ledger.gangs == {}
    world.delete("Pod", "demo-worker-0", force=True)
    passes(world, cluster)
    world.now += 100_000.0
    world.plan(cluster)

    assert world.ledger.verdict is None


def test_time_counts_from_when_the_tasks_may_start():
    """Of a job that starts after others, not before these are ready."""
    cluster = gang({"ps": 1, "worker": {"replicas": 2, "startAfter": ["ps"]}})
    world = InMemoryWorld()
    passes(world, cluster)
    assert set(world.ledger.gangs) == {"demo.0"}
    world.now += 500.0
    world.gang_is_placed("demo.0")
    passes(world, cluster)

    assert world.ledger.gangs == {"demo.worker.0": world.now}


def test_restart_has_the_whole_time_after_its_pause():
    """The tasks that restart together wait for places in another round."""
    cluster = gang({"worker": {"replicas": 2, "restartScope": "Job"}})
    world = waiting(cluster)
    world.gang_is_placed("demo.0")
    passes(world, cluster)
    world.pod_ends("demo-worker-0", "Failed")
    passes(world, cluster, 3)
    due = world.ledger.of("worker").restart_at
    assert due > world.now
    assert world.ledger.gangs == {}
    world.now = due
    passes(world, cluster)

    assert world.ledger.gangs == {"demo.1": due}


def test_server_without_groups_counts_as_waiting():
    """Nothing comes by itself there either."""
    cluster = gang()
    world = InMemoryWorld()
    world.stores.of["PodGroup"].have_none("the API server does not serve podgroups", None)
    passes(world, cluster)
    world.now += 600.0
    world.plan(cluster)

    assert world.ledger.verdict is not None
    assert world.ledger.verdict.message.endswith("600 s: the API server does not serve podgroups")


def test_what_is_known_survives_the_operator():
    """The time goes on where it was; a clock that was ahead counts as now."""
    cluster = gang()
    world = waiting(cluster)
    world.now += 400.0
    known = ledger.read(written(world, cluster))
    assert known.gangs == {"demo.0": world.now - 400.0}
    gave_up = ledger.Ledger(gave_up=GaveUp(7, "no room"))
    assert ledger.read({"internal": ledger.internal_fields(gave_up)}) == gave_up

    world.ledger = ledger.Ledger(gangs={"demo.0": world.now + 5_000.0})
    world.plan(cluster)
    assert world.ledger.gangs == {"demo.0": world.now}


def test_longer_limit_counts_at_once():
    """An edit while it waits moves the end."""
    world = waiting(gang())
    world.now += 590.0
    assert world.plan(gang(timeout=700, generation=2)).wake_after == 110.0


def test_waiting_for_quota_is_no_waiting_for_places():
    """A queue has a patience of its own; a gang that gave up returns its quota."""
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
    """A cluster without a limit is told nothing of times, and remembers none."""
    cluster = make_cluster({"worker": 3}, scheduling={"gang": {}})
    world = waiting(cluster)
    assert world.plan(cluster).wake_after is None
    assert "gangs" not in written(world, cluster)["internal"]


@pytest.mark.parametrize(
    ("field", "value"), [("timeoutSeconds", -1), ("timeoutSeconds", "soon"), ("onTimeout", "Wait")]
)
def test_wrong_field_is_told_by_its_path(field, value):
    """An older CRD lets it through."""
    with pytest.raises(InvalidSpecError, match=rf"spec\.scheduling\.gang\.{field}"):
        make_cluster({"worker": 1}, scheduling={"gang": {field: value}})
