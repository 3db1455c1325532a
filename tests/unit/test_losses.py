"""Lost pods, and pods that the operator deletes: what is counted, what is written first, and what is not."""

from __future__ import annotations

import pytest
from in_memory import make_cluster, running, settled

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import Failing, JobRecord, Ledger, Lost
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.objects.observed import Observed
from tfcluster_operator.plan.actions import Create, Delete
from tfcluster_operator.plan.evidence import enter_deletions, enter_done, must_be_written_first


# --- actions
def _done(known, *actions):
    return enter_done(call_roll(make_cluster({"worker": 3}), Observed()), known, actions).of("worker")


def _create(index, reason):
    task = Task(make_cluster({"worker": 3}).jobs[0], index)
    return Create("Pod", f"demo-worker-{index}", reason, task=task)


def test_created_pod_counts_as_started_and_not_lost():
    known = Ledger(jobs={"worker": JobRecord(replaced=4, lost={1: Lost("uid", 2), 2: Lost("", 0)})})
    record = _done(known, _create(1, reasons.POD_DISRUPTED))
    assert (record.started, record.replaced, set(record.lost)) == ({1}, 4, {2})


def test_loss_is_counted_once_and_when_it_is_seen():
    cluster, world = running({"worker": {"replicas": 3, "restartPolicy": "Always"}})
    known = world.stock(cluster)
    world.delete("Pod", "demo-worker-0", force=True)
    world.pod_ends("demo-worker-1", "Failed", reason="Evicted")
    world.pod_ends("demo-worker-2", "Succeeded")
    once = world.stock(cluster, known).of("worker")
    twice = world.stock(cluster, world.stock(cluster, known)).of("worker")
    assert (once.replaced, {i: bool(of.pod) for i, of in once.lost.items()}) == (3, {0: False, 1: True, 2: True})
    assert (once.started, twice) == (frozenset(), once)


def test_loss_is_counted_once_if_the_name_is_taken_immediately():
    cluster, world = running({"worker": 2})
    known = world.stock(cluster)
    world.delete("Pod", "demo-worker-1", force=True)
    world.create("Pod", {"metadata": {"name": "demo-worker-1", "namespace": cluster.namespace}, "spec": {}})
    once = world.stock(cluster, known)
    world.delete("Pod", "demo-worker-1", force=True)
    twice = world.stock(cluster, once)
    assert (once.of("worker").replaced, once.of("worker").started) == (1, frozenset({0}))
    assert twice.of("worker").replaced == 1


FAILING = {0: Failing(4, 9.0), 1: Failing(2, 5.0)}
ALL_STARTED = Ledger(jobs={"worker": JobRecord(started=frozenset({0, 1, 2}), failing=FAILING)})


@pytest.mark.parametrize(
    ("kind", "reason", "entered_first", "started", "failing"),
    [
        ("Pod", reasons.TEMPLATE_CHANGED, True, {0, 2}, {0}),
        ("Pod", reasons.RESTARTED_TOGETHER, False, {0, 2}, {0, 1}),
        ("Pod", reasons.FORCED, False, {0, 1, 2}, {0, 1}),
        ("ConfigMap", reasons.JOB_REMOVED, False, {0, 1, 2}, {0, 1}),
    ],
)
def test_deleted_pod_should_no_longer_exist(kind, reason, entered_first, started, failing):
    """A deletion by force is counted as a loss; an edit can resolve a failure, and does not wait for it."""
    delete = Delete(kind, "demo-worker-1", "uid", reason, force=reason == reasons.FORCED)
    record = _done(ALL_STARTED, delete)
    assert (record.started, set(record.failing)) == (started, failing)
    roster = call_roll(make_cluster({"worker": 3}), Observed())
    before = enter_deletions(roster, ALL_STARTED, [delete])
    assert before.of("worker").started == ({0, 2} if entered_first else {0, 1, 2}), "a crash makes no loss of it"
    assert (before is ALL_STARTED) != entered_first


def test_pod_that_we_delete_is_not_missed_while_it_terminates():
    world = settled(make_cluster({"worker": 1}))
    template = {"spec": {"containers": [{"name": "task", "image": "image:2"}]}}
    cluster = make_cluster({"worker": {"template": template}})
    world.apply_all(world.plan(cluster).actions, cluster)
    assert world.plan(cluster).actions == ()  # it terminates
    world.end_graceful_deletions()
    world.settle(cluster)
    assert world.ledger.of("worker").replaced == 0
    assert world.names("Pod") == {"demo-worker-0"}


@pytest.mark.parametrize(
    "edit",
    [None, {"spec": {"ephemeralContainers": [{"name": "debug"}]}}, {"spec": {}}],
    ids=["none", "debug", "resize"],
)
def test_pod_that_was_deleted_and_then_edited_has_not_failed(edit):
    """The SIGTERM of its deletion ended it, and the operator observed its termination while its program ran.

    A finalizer, or a slow neighbour of its main container, keeps it while a user debugs or resizes it: that increments
    its generation, and the kubelet's status of its end is of the previous generation.
    """
    cluster, world = running({"worker": {"replicas": 2, "restartPolicy": "Never"}}, resolver={"delivery": "None"})
    world.plan(cluster)
    world.delete("Pod", "demo-worker-1")
    world.plan(cluster)  # the operator observes its termination while its program runs
    assert world.objects["Pod", "demo-worker-1"]["metadata"]["generation"] == 2
    ended = {"name": "task", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
    statuses = [ended, {"name": "proxy", "state": {"running": {}}}]
    told = {"phase": "Running", "observedGeneration": 2, "containerStatuses": statuses}
    world.edit("Pod", "demo-worker-1", {"status": told})
    world.plan(cluster)
    assert world.ledger.verdict is None
    if edit is not None:
        world.edit("Pod", "demo-worker-1", {"metadata": {"generation": 3}, **edit})
    world.plan(cluster)
    assert world.ledger.verdict is None


@pytest.mark.parametrize("runs", [False, True])
def test_vanished_pod_is_replaced_before_its_loss_is_written(runs):
    cluster, world = running({"worker": 2})
    written = world.ledger
    world.delete("Pod", "demo-worker-0", force=True)
    assert not _comes_first(cluster, world, world.stock(cluster), written)
    world.apply_all(world.plan(cluster).actions, cluster)
    assert world.observe(cluster).pods["demo-worker-0"].replacement == 1
    if runs:
        world.all_pods_run()
    found_again = world.stock(cluster, written)
    assert found_again.of("worker").replaced == 1
    assert not _comes_first(cluster, world, found_again, written)
    assert world.stock(cluster, found_again).of("worker").replaced == 1


@pytest.mark.parametrize(("number", "replaced"), [(5, 5), ("1000000000", 0), ("many", 0)])
def test_the_last_pod_of_a_task_has_the_count_of_its_losses(number, replaced):
    """No status could be written, and the operator crashed; an invalid number would be copied into the status."""
    cluster, world = running({"worker": 2})
    written = world.ledger
    _tell(world, "demo-worker-0", number)
    known = world.stock(cluster, written)
    assert known.of("worker").replaced == replaced
    assert world.stock(cluster, known).of("worker").replaced == replaced


def _tell(world, name, number):
    world.edit("Pod", name, {"metadata": {"annotations": {naming.ANNOTATION_REPLACEMENT: str(number)}}})


def test_loss_seen_in_a_pod_is_written_before_its_deletion():
    cluster, world = running({"worker": 2})
    written = world.ledger
    world.delete("Pod", "demo-worker-0", force=True)
    known = world.stock(cluster)
    world.apply_all(world.plan(cluster).actions, cluster)
    made = Create("Pod", "demo-worker-0", reasons.POD_DISRUPTED, task=Task(cluster.jobs[0], 0))
    known = enter_done(call_roll(cluster, world.observe(cluster)), known, [made])
    ours = Delete("Pod", "demo-worker-0", "uid", reasons.SCALED_DOWN)
    assert _comes_first(cluster, world, known, written, ours)
    world.delete("Pod", "demo-worker-0", force=True)
    again = world.stock(cluster, known)
    assert again.of("worker").replaced == 2
    assert _comes_first(cluster, world, again, written)


def test_loss_with_a_remaining_pod_is_written_first():
    cluster, world = running({"worker": 2})
    written = world.ledger
    world.pod_ends("demo-worker-0", "Failed", reason="Evicted")
    assert _comes_first(cluster, world, world.stock(cluster), written)


def _comes_first(cluster, world, known, written, *planned):
    roster = call_roll(cluster, world.observe(cluster))
    return must_be_written_first(roster, known, written, planned, world.now)
