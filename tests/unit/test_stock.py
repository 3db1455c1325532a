"""Taking stock in its fixed order, and that no crash at any step of a pass loses a failure or counts it twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from in_memory import InMemoryWorld, make_body, make_cluster, settled

from tfcluster_operator.model import ledger, naming, reasons
from tfcluster_operator.model.actions import CreatePod, Delete
from tfcluster_operator.model.ledger import Failing, JobRecord, Ledger, Lost, Verdict
from tfcluster_operator.model.observed import Observed
from tfcluster_operator.model.parse import parse
from tfcluster_operator.model.plan import plan
from tfcluster_operator.model.roster import call_roll
from tfcluster_operator.model.spec import Task
from tfcluster_operator.model.status import status_of
from tfcluster_operator.model.stock import (
    enter_deletions,
    enter_done,
    must_be_written_first,
    seconds_until_forgiven,
    take_stock,
)
from tfcluster_operator.model.views import views_of


def stock(cluster, world, known=None):
    """Take stock of a world."""
    return take_stock(call_roll(cluster, world.observe(cluster)), known or world.ledger, world.now)


def test_first_pass_is_the_start():
    """The start is when the operator first saw the cluster, and stays."""
    cluster, world = make_cluster({"worker": 1}), InMemoryWorld()

    known = stock(cluster, world, Ledger())

    assert known.started_at == world.now
    world.now += 50
    assert stock(cluster, world, known).started_at == world.now - 50


def test_success_is_judged_before_failures():
    """Workers that fail while the chief ends well change nothing, even without any restart left."""
    cluster = make_cluster({"chief": 1, "worker": {"replicas": 2, "restartPolicy": "Never"}}, backoffLimit=0)
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Failed")
    world.pod_ends("demo-chief-0", "Succeeded")

    known = stock(cluster, world)

    assert (known.verdict.kind, known.restarts, known.finished_at) == ("Succeeded", 0, world.now)


def test_failures_are_judged_before_the_deadline():
    """A failure that ends the cluster is named though the deadline is over as well."""
    cluster = make_cluster({"worker": {"restartPolicy": "Never"}}, activeDeadlineSeconds=0)
    world = settled(make_cluster({"worker": {"restartPolicy": "Never"}}))
    world.pod_ends("demo-worker-0", "Failed")

    assert stock(cluster, world).verdict.reason == "TaskFailed"


def test_failure_that_was_seen_first_is_judged_first():
    """The limit is used up in the order in which the failures were seen, whatever the nodes' clocks say."""
    cluster = make_cluster({"worker": 3}, backoffLimit=1)
    world = settled(cluster)
    for name in ("demo-worker-2", "demo-worker-0", "demo-worker-1"):
        world.now += 1
        world.pod_ends(name, "Failed")
        world.observe(cluster)

    known = stock(cluster, world)

    assert known.last_restart.task == "worker-2"
    assert known.verdict.message.startswith("worker-0 failed after 1 of 1 restarts")


def test_failures_at_one_time_are_judged_by_job_and_index():
    """Two operators that see the same pods come to the same verdict."""
    cluster = make_cluster({"ps": 1, "worker": 2}, backoffLimit=2)
    world = settled(cluster)
    for name in ("demo-worker-1", "demo-ps-0", "demo-worker-0"):
        world.pod_ends(name, "Failed")
    known = stock(cluster, world)

    assert known.last_restart.task == "worker-0"
    assert known.verdict.message.startswith("worker-1 failed")


@pytest.mark.parametrize(
    ("ahead", "retry_in"), [(0.0, 0.0), (300.0, 300.0), (375.0, 375.0), (376.0, 0.0), (3600.0, 0.0)]
)
def test_time_that_no_pause_reaches_is_now(ahead, retry_in):
    """An operator whose clock was an hour ahead wrote it down: nobody waits for an hour that is no pause."""
    cluster = make_cluster({"worker": 1}, activeDeadlineSeconds=9)
    world = settled(cluster)
    now = world.now
    failing = {0: Failing(3, now + ahead)}
    known = Ledger(
        started_at=now + ahead, jobs={"worker": JobRecord(failing=failing, restart_at=now + ahead, in_row=3)}
    )

    found = stock(cluster, world, known)

    assert found.started_at == now
    assert (found.of("worker").failing[0].retry_at, found.of("worker").restart_at) == (now + retry_in,) * 2


@pytest.mark.parametrize(("since", "left"), [(0.0, 600.0), (599.0, 1.0), (600.0, None), (5000.0, None)])
def test_failure_of_a_task_that_works_is_forgotten_after_ten_minutes(since, left):
    """What would be remembered for ever would grow for ever."""
    cluster = make_cluster({"worker": 1})
    world = settled(cluster)
    known = Ledger(started_at=5.0, jobs={"worker": JobRecord(failing={0: Failing(3, world.now - since)})})

    found = stock(cluster, world, known)
    roster = call_roll(cluster, world.observe(cluster)).completed_by(found)

    assert seconds_until_forgiven(roster, found, world.now) == left
    assert bool(found.of("worker").failing) == (left is not None)


def test_failure_of_a_task_that_does_not_work_is_not_forgotten():
    """A pod that takes long to be ready has proved nothing yet."""
    cluster = make_cluster({"worker": 1})
    world = settled(cluster)
    world.pod_runs("demo-worker-0", conditions=[])
    known = Ledger(started_at=5.0, jobs={"worker": JobRecord(failing={0: Failing(3, world.now - 5000)})})

    found = stock(cluster, world, known)

    assert found.of("worker").failing == known.of("worker").failing
    roster = call_roll(cluster, world.observe(cluster))
    assert seconds_until_forgiven(roster, found, world.now) is None


def test_verdict_is_for_ever():
    """Nothing is counted after it: no failure, no success, no suspension."""
    cluster = make_cluster({"chief": 1, "worker": 2}, suspend=True)
    world = settled(make_cluster({"chief": 1, "worker": 2}))
    world.pod_ends("demo-chief-0", "Succeeded")
    world.pod_ends("demo-worker-0", "Failed")
    known = replace(world.ledger, verdict=Verdict("Failed", "TaskFailed", "it did"), finished_at=5.0)

    found = stock(cluster, world, known)

    assert replace(found, jobs={}) == replace(known, jobs={})
    assert all(record.completed == record.counted == frozenset() for record in found.jobs.values())


def test_what_only_served_the_next_start_goes_with_the_end():
    """Nothing starts any more: a finished cluster keeps its counts, and no list that could be long."""
    counts = JobRecord(restarts=3, replaced=2, incarnation=1, in_row=3, completed=frozenset({0}))
    record = replace(
        counts, started=frozenset({1}), counted=frozenset({"a"}), failing={1: Failing(3, 9.0)}, restart_at=9.0
    )
    known = Ledger(finished_at=5.0, verdict=Verdict("Failed", "R", "M"), jobs={"worker": record})

    assert stock(make_cluster({"worker": 2}), InMemoryWorld(), known).of("worker") == counts


def test_suspended_cluster_is_as_at_the_start_but_for_its_incarnation():
    """Counts, times and completed tasks are gone; pods of an earlier incarnation are still told apart."""
    used = JobRecord(
        restarts=2,
        replaced=3,
        incarnation=4,
        in_row=2,
        restart_at=9.0,
        completed=frozenset({0}),
        failing={1: Failing(1, 2.0)},
    )
    known = Ledger(started_at=5.0, restarts=2, jobs={"worker": used})

    rested = stock(make_cluster({"worker": 2}, suspend=True), InMemoryWorld(), known)

    assert (rested.started_at, rested.restarts, rested.of("worker")) == (0.0, 0, JobRecord(incarnation=5))
    again = stock(make_cluster({"worker": 2}, suspend=True), InMemoryWorld(), rested)
    assert again.of("worker") == JobRecord(incarnation=5)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_of_the_life_before_a_suspension_says_nothing_after_it(phase):
    """Its program had ended, and a finalizer keeps the pod when the cluster is resumed: the task runs again."""
    running = make_cluster({"worker": 1})
    world = settled(running)
    world.edit("Pod", "demo-worker-0", {"metadata": {"finalizers": ["example.com/keep"]}})
    world.pod_ends("demo-worker-0", phase)
    world.observe(running)
    world.edit("Pod", "demo-worker-0", {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}})
    rested = stock(
        make_cluster({"worker": 1}, suspend=True), world, Ledger(started_at=5.0, jobs={"worker": JobRecord()})
    )

    resumed = stock(running, world, rested)

    assert (resumed.verdict, resumed.restarts, resumed.of("worker").completed) == (None, 0, frozenset())


def test_suspended_cluster_has_no_deadline():
    """It may rest as long as its user wants."""
    cluster = make_cluster({"worker": 1}, suspend=True, activeDeadlineSeconds=1)

    assert stock(cluster, InMemoryWorld(), Ledger(started_at=5.0)).verdict is None


def test_five_tasks_of_a_scope_that_fail_together_are_one_restart():
    """The first is counted, and the others belong to the same incident."""
    cluster = make_cluster({"worker": {"replicas": 5, "restartScope": "Job"}}, backoffLimit=1)
    world = settled(cluster)
    for index in range(5):
        world.pod_ends(f"demo-worker-{index}", "Failed")

    known = stock(cluster, world)

    assert (known.restarts, known.of("worker").incarnation, known.verdict) == (1, 1, None)
    assert stock(cluster, world, known) == known


def test_pod_of_an_earlier_incarnation_says_nothing():
    """What ends of what is being replaced completes no task and is no failure."""
    cluster = make_cluster({"worker": {"replicas": 2, "restartScope": "Job"}})
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Failed")
    known = stock(cluster, world)
    world.pod_ends("demo-worker-1", "Succeeded")

    assert stock(cluster, world, known) == known


@pytest.mark.parametrize(
    ("policy", "completed"), [("OnFailure", {0}), ("Never", {0}), ("ExitCode", {0}), ("Always", set())]
)
def test_task_that_ended_well_is_complete_but_under_always(policy, completed):
    """Under Always it runs again."""
    cluster = make_cluster({"chief": 1, "worker": {"replicas": 2, "restartPolicy": policy}})
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Succeeded")

    assert stock(cluster, world).of("worker").completed == completed


def test_what_is_declared_no_more_is_forgotten():
    """A task that was complete, and is scaled away and back, runs again; a job that is gone has no record."""
    record = JobRecord(
        completed=frozenset({0, 3}),
        started=frozenset({3}),
        failing={1: Failing(1, 2.0), 3: Failing(1, 2.0)},
        lost={1: Lost("", 0), 3: Lost("", 0)},
    )
    known = Ledger(started_at=5.0, jobs={"worker": record, "ps": record})

    after = stock(make_cluster({"worker": 2}), InMemoryWorld(), known)

    assert set(after.jobs) == {"worker"}
    worker = after.of("worker")
    assert (worker.completed, worker.started, set(worker.failing), set(worker.lost)) == ({0}, set(), {1}, {1})


def test_failure_is_counted_once_though_its_task_is_scaled_away_and_back():
    """The pod still terminates when it is declared again: what was counted of it stays counted."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    world.pod_ends("demo-worker-1", "Failed")
    known = stock(cluster, world)

    known = stock(make_cluster({"worker": 1}), world, known)
    known = stock(cluster, world, known)

    assert (known.restarts, len(known.of("worker").counted)) == (1, 1)
    world.delete("Pod", "demo-worker-1")
    assert not stock(cluster, world, known).of("worker").counted


def test_pod_of_others_says_nothing():
    """What somebody else runs under our name neither completes a task nor fails it."""
    cluster = make_cluster({"worker": 1})
    world = settled(cluster)
    world.pod_ends("demo-worker-0", "Succeeded")
    world.edit("Pod", "demo-worker-0", {"metadata": {"ownerReferences": None}})

    assert stock(cluster, world, Ledger()).of("worker").completed == set()


# --- what was done


def _done(known, *actions):
    return enter_done(call_roll(make_cluster({"worker": 3}), Observed()), known, actions).of("worker")


def _create(index, reason):
    return CreatePod(Task(make_cluster({"worker": 3}).jobs[0], index), f"demo-worker-{index}", "", 0, reason)


def test_made_pod_has_started_and_is_lost_no_more():
    """What was lost was counted when it was seen."""
    known = Ledger(jobs={"worker": JobRecord(replaced=4, lost={1: Lost("uid", 2), 2: Lost("", 0)})})

    record = _done(known, _create(1, reasons.POD_DISRUPTED))

    assert (record.started, record.replaced, set(record.lost)) == ({1}, 4, {2})


def test_loss_is_counted_once_and_when_it_is_seen():
    """A pod that is gone, one that was evicted and one that ended well under Always; no look counts one twice."""
    cluster = make_cluster({"worker": {"replicas": 3, "restartPolicy": "Always"}})
    world = settled(cluster)
    known = stock(cluster, world)
    world.delete("Pod", "demo-worker-0", force=True)
    world.pod_ends("demo-worker-1", "Failed", reason="Evicted")
    world.pod_ends("demo-worker-2", "Succeeded")

    once = stock(cluster, world, known).of("worker")
    twice = stock(cluster, world, stock(cluster, world, known)).of("worker")

    assert (once.replaced, {i: bool(of.pod) for i, of in once.lost.items()}) == (3, {0: False, 1: True, 2: True})
    assert (once.started, twice) == (frozenset(), once)


def test_loss_is_counted_once_where_somebody_took_the_name_at_once():
    """The pod was deleted and another made under its name before anybody looked: it is lost all the same."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    known = stock(cluster, world)
    world.delete("Pod", "demo-worker-1", force=True)
    world.create("Pod", {"metadata": {"name": "demo-worker-1", "namespace": cluster.namespace}, "spec": {}})

    once = stock(cluster, world, known)
    world.delete("Pod", "demo-worker-1", force=True)
    twice = stock(cluster, world, once)

    assert (once.of("worker").replaced, once.of("worker").started) == (1, frozenset({0}))
    assert twice.of("worker").replaced == 1


def test_deletion_of_our_own_is_no_loss():
    """It is written down before it is done: after a crash nobody takes it for somebody else's."""
    cluster = make_cluster({"worker": 3})
    known = Ledger(jobs={"worker": JobRecord(started=frozenset({0, 1, 2}))})
    delete = Delete("Pod", "demo-worker-1", "uid", reasons.TEMPLATE_CHANGED)
    roster = call_roll(cluster, Observed())

    entered = enter_deletions(roster, known, [delete])

    assert entered.of("worker").started == {0, 2}
    assert enter_deletions(roster, known, [Delete("Pod", "demo-worker-1", "uid", reasons.FORCED)]) is known


def test_deleted_pod_should_no_longer_exist():
    """What we deleted is created again; what was deleted by force was taken away by others."""
    known = Ledger(jobs={"worker": JobRecord(started=frozenset({0, 1, 2}))})

    assert _done(known, Delete("Pod", "demo-worker-1", "uid", reasons.TEMPLATE_CHANGED)).started == {0, 2}
    assert _done(known, Delete("Pod", "demo-worker-1", "uid", reasons.FORCED, force=True)).started == {0, 1, 2}
    assert _done(known, Delete("ConfigMap", "demo-worker-1", "uid", reasons.JOB_REMOVED)).started == {0, 1, 2}


def test_pod_that_we_delete_is_not_missed_while_it_terminates():
    """Its successor is created, and replaces nothing that others took away."""
    world = settled(make_cluster({"worker": 1}))
    template = {"spec": {"containers": [{"name": "task", "image": "image:2"}]}}
    cluster = make_cluster({"worker": {"template": template}})
    world.apply_all(world.plan(cluster).actions, cluster)
    assert world.plan(cluster).actions == ()  # it terminates

    world.end_graceful_deletions()
    world.settle(cluster)

    assert world.ledger.of("worker").replaced == 0
    assert world.names("Pod") == {"demo-worker-0"}


def test_edit_that_may_cure_a_failure_does_not_wait_for_it():
    """A pod that goes because its template changed is forgiven; one that goes for another cause is not."""
    failing = {0: Failing(4, 9.0), 1: Failing(2, 5.0)}
    known = Ledger(jobs={"worker": JobRecord(failing=failing)})

    assert _done(known, Delete("Pod", "demo-worker-1", "uid", reasons.TEMPLATE_CHANGED)).failing == {0: failing[0]}
    assert _done(known, Delete("Pod", "demo-worker-1", "uid", reasons.RESTARTED_TOGETHER)).failing == failing


@pytest.mark.parametrize("edit", ["none", "ephemeral container", "resize"])
def test_pod_that_was_deleted_and_then_edited_has_not_failed(edit: str):
    """It ended by the SIGTERM of its deletion, and the operator saw it terminate while its program ran.

    A finalizer, or a slow neighbour of its main container, keeps it while somebody debugs or resizes it: that counts
    its generation up, and the kubelet's word of its end is of the generation before.
    """
    cluster = make_cluster({"worker": {"replicas": 2, "restartPolicy": "Never"}}, resolver={"delivery": "None"})
    world = settled(cluster)
    world.plan(cluster)
    world.delete("Pod", "demo-worker-1")
    world.plan(cluster)  # the operator sees it terminate, and its program runs
    assert world.objects["Pod", "demo-worker-1"]["metadata"]["generation"] == 2
    ended = {"name": "task", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
    neighbour = {"name": "proxy", "state": {"running": {}}}
    told = {"phase": "Running", "observedGeneration": 2, "containerStatuses": [ended, neighbour]}
    world.edit("Pod", "demo-worker-1", {"status": told})
    world.plan(cluster)
    assert world.ledger.verdict is None
    if edit != "none":
        change = {"spec": {"ephemeralContainers": [{"name": "debug"}]}} if edit.startswith("eph") else {"spec": {}}
        world.edit("Pod", "demo-worker-1", {"metadata": {"generation": 3}, **change})

    world.plan(cluster)

    assert world.ledger.verdict is None


# --- crashes


class Passes:
    """An operator that can crash between any two steps of a pass; what it knows is then what the status holds."""

    def __init__(self, world, jobs, **spec):
        self.world, self.jobs, self.spec = world, jobs, spec
        self.status = {}

    def one(self, *, evidence=True, actions=99, report=True):
        """Make a pass: write the evidence or crash, carry out so many actions or crash, report or crash."""
        cluster = parse(make_body(self.jobs, status=self.status, **self.spec))
        written = ledger.read(self.status)
        roster = call_roll(cluster, self.world.observe(cluster))
        known = take_stock(roster, written, self.world.now)
        roster = roster.completed_by(known)
        planned = plan(roster, known, views_of(roster).of_jobs, self.world.now)
        if must_be_written_first(roster, known, written, planned.actions, self.world.now):
            if not evidence:
                self.world.restart_operator()
                return None
            self.status = status_of(roster, known, planned.views, planned.findings, self.world.now)
        done = planned.actions[:actions]
        self.world.apply_all(done, cluster)
        if report and len(done) == len(planned.actions):
            known = enter_done(roster, known, done)
            roster = call_roll(cluster, self.world.observe(cluster)).completed_by(known)
            self.status = status_of(roster, known, planned.views, planned.findings, self.world.now)
        else:
            self.world.restart_operator()
        return planned

    def settle(self):
        """Let an undisturbed operator finish."""
        for _ in range(12):
            self.world.end_graceful_deletions()
            planned = self.one()
            if not planned.actions and planned.wake_after is None:
                return
            self.world.now += planned.wake_after or 0.0
            self.world.all_pods_run()
        raise AssertionError(planned)


CRASHES = [
    {"evidence": False},
    {"actions": 0},
    {"actions": 1},
    {"actions": 2},
    {"actions": 3},
    {"report": False},
]


@pytest.mark.parametrize("waited", [0.0, 2.0])
@pytest.mark.parametrize("second", CRASHES)
@pytest.mark.parametrize("first", CRASHES)
@pytest.mark.parametrize("scope", ["Task", "Job"])
@pytest.mark.parametrize("limit", [0, 1])
def test_no_crash_loses_or_doubles_a_failure(scope, limit, first, second, waited):
    """Two tasks fail, and the operator crashes twice, anywhere: each incident is counted once, and each log stays."""
    workers, restarts = {"replicas": 3, "restartScope": scope}, 2 if scope == "Task" else 1
    passes = Passes(InMemoryWorld(), {"ps": 1, "worker": workers}, backoffLimit=2, failedPodsHistoryLimit=limit)
    passes.settle()
    for name in ("demo-worker-0", "demo-worker-2"):
        passes.world.pod_ends(name, "Failed")

    passes.one(**first)
    passes.world.now += waited
    passes.one(**second)
    passes.settle()

    known = ledger.read(passes.status)
    assert (known.restarts, known.of("worker").restarts, known.verdict) == (restarts, restarts, None)
    later = "-r1" if limit else ""
    assert passes.world.by_task() == {
        "demo-ps-0": "demo-ps-0",
        "demo-worker-0": f"demo-worker-0{later}",
        "demo-worker-1": "demo-worker-1",
        "demo-worker-2": f"demo-worker-2{later}",
    }
    assert passes.world.kept() == ({"demo-worker-0", "demo-worker-2"} if limit else set())
    assert known.of("worker").replaced == 0


@pytest.mark.parametrize("later", [False, True], ids=["at once", "one later"])
@pytest.mark.parametrize("second", CRASHES)
@pytest.mark.parametrize("first", CRASHES)
def test_no_crash_loses_or_doubles_a_loss(first, second, later):
    """Two pods vanish, and the operator crashes twice, anywhere: each loss is counted once."""
    passes = Passes(InMemoryWorld(), {"ps": 1, "worker": 3})
    passes.settle()
    passes.world.delete("Pod", "demo-worker-0", force=True)
    if not later:
        passes.world.delete("Pod", "demo-worker-2", force=True)

    passes.one(**first)
    passes.world.all_pods_run()
    if later:
        passes.world.delete("Pod", "demo-worker-2", force=True)
    passes.one(**second)
    passes.settle()

    assert ledger.read(passes.status).of("worker").replaced == 2
    assert passes.world.names("Pod") == {"demo-ps-0", "demo-worker-0", "demo-worker-1", "demo-worker-2"}


@pytest.mark.parametrize("running", [False, True])
def test_vanished_pod_is_replaced_before_its_loss_is_written(running):
    """What exists tells of it: first that there is no pod, then the annotation of the new one, also when that runs."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    written = world.ledger
    world.delete("Pod", "demo-worker-0", force=True)

    assert not _comes_first(cluster, world, stock(cluster, world), written)
    world.apply_all(world.plan(cluster).actions, cluster)
    assert world.observe(cluster).pods["demo-worker-0"].replacement == 1
    if running:
        world.all_pods_run()
    found_again = stock(cluster, world, written)
    assert found_again.of("worker").replaced == 1
    assert not _comes_first(cluster, world, found_again, written)
    assert stock(cluster, world, found_again).of("worker").replaced == 1


def test_task_that_was_lost_again_and_again_is_counted_at_once():
    """No status could be written, the task was lost five times, and the operator died: the last pod tells of all."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    written = world.ledger
    _tell(world, "demo-worker-0", 5)

    known = stock(cluster, world, written)

    assert known.of("worker").replaced == 5
    assert stock(cluster, world, known).of("worker").replaced == 5


@pytest.mark.parametrize("told", ["1000000000", "many"])
def test_what_nobody_can_have_counted_is_not_believed(told):
    """Annotations are anybody's to write; a number of any size would go into the status."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    _tell(world, "demo-worker-0", told)

    assert stock(cluster, world).of("worker").replaced == 0


def _tell(world, name, number):
    world.edit("Pod", name, {"metadata": {"annotations": {naming.ANNOTATION_REPLACEMENT: str(number)}}})


def test_what_a_pod_tells_of_a_loss_is_written_before_the_pod_goes():
    """Whether we delete it, or it was lost as well."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    written = world.ledger
    world.delete("Pod", "demo-worker-0", force=True)
    known = stock(cluster, world)
    world.apply_all(world.plan(cluster).actions, cluster)
    made = CreatePod(Task(cluster.jobs[0], 0), "demo-worker-0", "", 0, reasons.POD_DISRUPTED)
    known = enter_done(call_roll(cluster, world.observe(cluster)), known, [made])

    ours = Delete("Pod", "demo-worker-0", "uid", reasons.SCALED_DOWN)
    assert _comes_first(cluster, world, known, written, ours)
    world.delete("Pod", "demo-worker-0", force=True)
    again = stock(cluster, world, known)
    assert again.of("worker").replaced == 2
    assert _comes_first(cluster, world, again, written)


def test_loss_of_which_something_is_left_is_written_first():
    """An evicted pod is there still, and is deleted when it is replaced."""
    cluster = make_cluster({"worker": 2})
    world = settled(cluster)
    written = world.ledger
    world.pod_ends("demo-worker-0", "Failed", reason="Evicted")

    assert _comes_first(cluster, world, stock(cluster, world), written)


def _comes_first(cluster, world, known, written, *planned):
    roster = call_roll(cluster, world.observe(cluster))
    return must_be_written_first(roster, known, written, planned, world.now)


@pytest.mark.parametrize("crash", CRASHES)
def test_no_crash_loses_a_success(crash):
    """A worker ends well and the operator crashes: it never runs again, even when its pod is deleted."""
    passes = Passes(InMemoryWorld(), {"chief": 1, "worker": 2})
    passes.settle()
    passes.world.pod_ends("demo-worker-0", "Succeeded")

    passes.one(**crash)
    passes.one()
    passes.world.delete("Pod", "demo-worker-0")
    passes.settle()

    assert ledger.read(passes.status).of("worker").completed == {0}
    assert passes.world.names("Pod") == {"demo-chief-0", "demo-worker-1"}


@pytest.mark.parametrize("crash", CRASHES)
def test_no_crash_undoes_an_end(crash):
    """The verdict is written before a pod is cleaned up, and no crash makes another of it."""
    passes = Passes(InMemoryWorld(), {"chief": 1, "worker": {"replicas": 2, "restartPolicy": "Never"}})
    passes.settle()
    passes.world.pod_ends("demo-chief-0", "Succeeded")

    passes.one(**crash)
    passes.one()
    passes.world.end_graceful_deletions()
    passes.one()

    assert ledger.read(passes.status).verdict.kind == "Succeeded"
    assert passes.world.names("Pod") == {"demo-chief-0"}
