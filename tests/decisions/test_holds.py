"""Recent rejections and reverted repairs: a growing back-off, and a limit on fights with other controllers."""

from dataclasses import replace

import pytest
from decisions.in_memory import NOW, InMemoryWorld, creates, make_cluster, running, settled

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.plan.actions import Delete, Finding, Patch
from tfcluster_operator.plan.story import SERVICE, Holds, gate_of

QUOTA = Finding(reasons.REJECTED, "Pod demo-worker-0: exceeded quota")
GATE = gate_of("pods", "worker")


def refused(times: int, *, gate: str = GATE, finding: Finding = QUOTA) -> Holds:
    """Reject a gate repeatedly, each time after its back-off; the last time is NOW."""
    found, now = Holds(), NOW - 10_000
    for time in range(times):
        now = NOW if time == times - 1 else now + 100
        found = found.after({gate: finding}, (), (), now)
    return found


# --- rejections
@pytest.mark.parametrize(("times", "pause"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (30, 60)])
def test_back_off_doubles_up_to_a_minute(times, pause):
    found = refused(times)
    assert found.closed(GATE, NOW + pause - 0.001).finding == QUOTA
    assert found.closed(GATE, NOW + pause) is None
    assert found.tried(GATE) == times


@pytest.mark.parametrize(("times", "pause"), [(1, 1), (3, 4), (30, 4)])
def test_back_off_stays_short_until_the_api_server_serves_a_new_crd(times, pause):
    words = (
        'Service demo: services "demo" is forbidden: cannot set blockOwnerDeletion in this case because cannot find '
        'RESTMapping for APIVersion tfcluster.dev/v1alpha1 Kind TFCluster: no matches for kind "TFCluster"'
    )
    found = refused(times, finding=Finding(reasons.REJECTED, words))
    assert found.gates[GATE].until == NOW + pause


def test_gate_that_let_something_pass_is_forgotten():
    passed = refused(5).after({}, [GATE], (), NOW)
    assert (passed.closed(GATE, NOW), passed.tried(GATE)) == (None, 0)
    assert passed.after({GATE: QUOTA}, (), (), NOW).gates[GATE].until == NOW + 1
    refused_another = refused(2).after({GATE: QUOTA}, [GATE], (), NOW)
    assert (refused_another.tried(GATE), refused_another.closed(GATE, NOW).until) == (1, NOW + 1)


def test_lifted_gates_are_open_and_remember():
    """The back-off starts again after an event that can resolve the rejection."""
    found = refused(5)
    for times in (5, 6, 7):
        lifted = found.lifted(NOW)
        assert (lifted.closed(GATE, NOW), lifted.tried(GATE)) == (None, times)
        found = lifted.after({GATE: QUOTA}, (), (), NOW)
        assert found.gates[GATE].until == NOW + 1
    assert found.after({GATE: QUOTA}, (), (), NOW).gates[GATE].until == NOW + 2


# --- in a plan


LOST_FIRST = ["demo-ps-0", "demo-worker-0", "demo-chief-0", "demo-ps-1", "demo-worker-1", "demo-worker-2"]
OTHERS_FIRST = ["demo-worker-0", "demo-chief-0", "demo-ps-1", "demo-ps-0", "demo-worker-1", "demo-worker-2"]
DENIED = Finding(reasons.REJECTED, "denied by a webhook")


def lose(world: InMemoryWorld, *pods: str) -> None:
    for name in pods:
        world.objects.pop(("Pod", name))


@pytest.mark.parametrize(("finding", "created"), [(None, LOST_FIRST), (QUOTA, LOST_FIRST), (DENIED, OTHERS_FIRST)])
def test_lost_pods_come_before_new_ones(finding, created):
    """Chief and ps first; only a rejection of one particular pod lets others go first."""
    world = settled(make_cluster({"ps": 1, "worker": 1}))
    cluster = make_cluster({"worker": 3, "ps": 2, "chief": 1}, generation=2)
    lose(world, "demo-ps-0", "demo-worker-0")
    if finding:
        world.holds = refused(1, gate=gate_of("pods", "ps"), finding=finding).lifted(world.now)
    assert names(cluster, world) == created


def test_new_pods_do_not_take_the_room_of_lost_ones():
    world = settled(make_cluster({"ps": 1, "worker": 1}))
    cluster = make_cluster({"ps": 1, "worker": 2}, generation=2)
    lose(world, "demo-ps-0")
    world.holds = refused(1, gate=gate_of("pods", "ps"))
    assert names(cluster, world) == []
    world.holds = refused(1, gate=gate_of("pods", "ps"), finding=DENIED)
    assert names(cluster, world) == ["demo-worker-1"]


def names(cluster: TFCluster, world: InMemoryWorld) -> list[str]:
    return [one.name for one in world.plan(cluster).actions if creates(one, "Pod")]


def test_closed_gate_holds_up_what_needs_it_and_nothing_else():
    cluster = make_cluster({"chief": 1, "worker": 2})
    world = settled(make_cluster({"chief": 1, "ps": 1, "worker": 2}))
    lose(world, "demo-chief-0", "demo-worker-0", "demo-worker-1")
    world.holds = refused(3)
    planned = world.plan(cluster)
    created = [one.name for one in planned.actions if creates(one, "Pod")]
    deleted = {one.name for one in planned.actions if isinstance(one, Delete)}
    assert (created, deleted) == (["demo-chief-0"], {"demo-ps-0", "demo-ps"})
    assert (planned.findings, planned.wake_after) == ((QUOTA,), 4.0)
    world.now += 4.0
    assert names(cluster, world) == ["demo-chief-0", "demo-worker-0", "demo-worker-1"]


@pytest.mark.parametrize(
    ("gate", "created"),
    [
        (SERVICE, []),
        (gate_of("views", "worker"), ["demo-chief-0"]),
        (gate_of("pods", "chief"), ["demo-worker-0"]),
        (gate_of("Pod", "demo-worker-0"), ["demo-chief-0", "demo-worker-0"]),
    ],
)
def test_each_gate_has_those_that_need_it(gate, created):
    cluster, world = make_cluster({"chief": 1, "worker": 1}), InMemoryWorld()
    world.holds = refused(1, gate=gate)
    assert names(cluster, world) == created


def test_tried_gate_is_tried_carefully_and_with_another_task_first():
    """An error of one task must not stop the others; a thousand rejections must not cost a thousand requests."""
    cluster, world = running({"worker": 3})
    lose(world, "demo-worker-0", "demo-worker-1", "demo-worker-2")
    fresh = world.plan(cluster).groups
    world.holds = refused(4, finding=DENIED).lifted(world.now)
    tried = world.plan(cluster).groups
    assert [group.careful for group in fresh] == [False]
    assert [group.careful for group in tried] == [True]
    assert [step.action.name for step in tried[0].steps] == ["demo-worker-1", "demo-worker-2", "demo-worker-0"]


# --- fights with other controllers
REPAIR = Patch("Service", "demo", "uid", {"spec": {"selector": {"a": None}}}, reasons.REPAIRED)
OTHER_REPAIR = Patch("Service", "demo", "uid", {"spec": {"ports": []}}, reasons.REPAIRED)


def repaired(times: int, action: Patch | Delete = REPAIR) -> Holds:
    """Repair something repeatedly, the last time NOW."""
    found = Holds()
    for time in range(times):
        found = found.after({}, (), [action], NOW - (times - 1 - time) * 301)
    return found


@pytest.mark.parametrize(
    ("times", "pause"), [(0, None), (1, None), (2, 1), (3, 2), (5, 8), (10, 256), (11, 300), (50, 300)]
)
def test_repeated_repair_backs_off(times, pause):
    found = repaired(times).truce(REPAIR, NOW)
    if pause is None:
        assert found is None
    else:
        assert (found.until - NOW, found.finding.reason) == (pause, reasons.CONFLICTING_WRITES)
        assert f"Service demo was corrected {times} times" in found.finding.message
        assert repaired(times).truce(REPAIR, NOW + pause) is None


@pytest.mark.parametrize(("times", "told"), [(1, []), (2, []), (3, [2.0]), (5, [8.0])])
def test_contested_repair_is_reported_as_doubtful(times, told):
    """It can be reverted already, without an event: the status says so until the next attempt finds it intact."""
    found = repaired(times)
    assert [hold.pause for hold in found.doubts(NOW)] == told
    assert {hold.finding.reason for hold in found.doubts(NOW)} <= {reasons.CONFLICTING_WRITES}
    assert list(found.doubts(NOW + 1.0)) == []


AGAIN = Delete("Pod", "demo-worker-0", "uid", reasons.TEMPLATE_CHANGED, toward="hash")
RECREATE = Delete("Service", "demo", "uid", reasons.RECREATED)


@pytest.mark.parametrize(
    ("before", "action", "pause"),
    [
        (repaired(5), REPAIR, 8),
        (repaired(5), OTHER_REPAIR, None),
        (repaired(5).after({}, (), [OTHER_REPAIR], NOW), REPAIR, None),
        (repaired(3, RECREATE), replace(RECREATE, uid="another"), 2),
        # A policy removes the template's mark from each new pod: without a back-off, two tasks would cost a pod per
        # second.
        (repaired(4, AGAIN), replace(AGAIN, uid="another"), 4),
        (repaired(4, AGAIN), replace(AGAIN, toward="another hash"), None),
    ],
    ids=["again", "another repair", "after another repair", "deleted again", "deleted for a template", "edited again"],
)
def test_repair_back_off_is_per_change_and_object(before, action, pause):
    found = before.truce(action, NOW)
    assert (found and (found.until - NOW, found.finding.reason)) == (pause and (pause, reasons.CONFLICTING_WRITES))


@pytest.mark.parametrize(("later", "forgotten"), [(607.0, False), (608.0, True)])
def test_repair_conflict_is_forgotten_after_ten_minutes(later, forgotten):
    found = repaired(5).after({}, (), (), NOW + later)
    assert (found.gates == {}) is forgotten


def test_writes_other_than_repairs_do_not_back_off():
    deletion = Delete("Pod", "demo-worker-0", "uid", reasons.SCALED_DOWN)
    found = Holds()
    for number in range(9):
        change = {"metadata": {"annotations": {naming.ANNOTATION_VIEW: str(number)}}}
        told = Patch("Pod", "demo-worker-0", "uid", change, reasons.VIEW_CHANGED)
        assert found.truce(told, NOW) is None
        found = found.after({}, (), [told, deletion], NOW)
    assert found.truce(deletion, NOW) is None


def test_repair_back_off_in_a_plan_waits_and_is_reported():
    cluster, world = running({"worker": 2})
    spoiled = {"metadata": {"labels": {naming.LABEL_MANAGED_BY: "somebody"}}}
    for _ in range(2):
        world.edit("Pod", "demo-worker-0", spoiled)
        (action,) = world.plan(cluster).actions
        world.apply(action, cluster)
        world.holds = world.holds.after({}, (), [action], world.now)
    world.edit("Pod", "demo-worker-0", spoiled)
    world.edit("Pod", "demo-worker-1", spoiled)
    planned = world.plan(cluster)
    assert [action.name for action in planned.actions] == ["demo-worker-1"]
    assert ([finding.reason for finding in planned.findings], planned.wake_after) == ([reasons.CONFLICTING_WRITES], 1.0)
    assert len(planned.groups) == 1


def test_rejection_of_another_task_keeps_the_first_message():
    first, second = (Finding("R", f'pods "demo-worker-{index}" is forbidden') for index in (1, 2))
    once = Holds().after({GATE: first}, (), (), NOW)
    twice = once.after({GATE: second}, (), (), NOW + 1.0)
    assert list(twice.told({GATE: second})) == [first]
    assert list(twice.after({GATE: QUOTA}, (), (), NOW).told({GATE: QUOTA})) == [QUOTA]
