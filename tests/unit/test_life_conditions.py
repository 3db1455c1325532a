"""What the conditions say of a cluster's life: its end, its suspension, its rollouts, and what waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from in_memory import NOW, TEMPLATE, make_cluster, merge_patch, settled

from tfcluster_operator.model import reasons
from tfcluster_operator.model.actions import Finding
from tfcluster_operator.model.conditions import KINDS, with_others
from tfcluster_operator.model.ledger import JobRecord, Ledger, Verdict
from tfcluster_operator.model.ledger import read as read_ledger
from tfcluster_operator.model.roster import call_roll
from tfcluster_operator.model.status import status_of
from tfcluster_operator.model.views import views_of

OTHER = merge_patch(TEMPLATE, {"spec": {"containers": [{"name": "task", "image": "image:2"}]}})
FAILED = Verdict("Failed", "TaskFailed", "worker-0 failed")


def said(cluster, world, known=None, *, findings=(), changed=None):
    """Give every condition by its type."""
    known = known or world.ledger
    roster = call_roll(cluster, world.observe(cluster)).completed_by(known)
    status = status_of(roster, known, views_of(roster).of_jobs, findings, NOW, changed=changed)
    return {condition["type"]: condition for condition in status["conditions"]}


def told(condition):
    """Give what a condition says in short."""
    return condition["status"], condition["reason"]


def test_every_condition_of_ours_is_known_as_such(world):
    """The conditions that are written are those that are taken for the operator's own."""
    assert set(said(make_cluster(), world)) == KINDS


def test_conditions_of_others_are_taken_as_they_are_by_now():
    """A status that waits to be written takes over what others said, changed and took back since."""
    audited = {"type": "example.test/Audited", "status": "True"}
    ready = {"type": "Ready", "status": "True"}
    ours = {"epoch": 3, "conditions": [ready, {"type": "example.test/Gone", "status": "True"}]}
    latest = {"epoch": 2, "conditions": [audited, {"type": "Ready", "status": "False"}]}

    assert with_others(ours, latest) == {"epoch": 3, "conditions": [ready, audited]}


@pytest.fixture
def world():
    """A chief and two workers that run."""
    return settled(make_cluster())


@pytest.mark.parametrize(
    ("kind", "reason", "ready", "stalled"),
    [
        ("Failed", "TaskFailed", ("False", "TaskFailed"), ("True", "TaskFailed")),
        ("Succeeded", "TasksSucceeded", ("True", "Succeeded"), ("False", "NotStalled")),
    ],
)
def test_end_is_one_of_two(world, kind, reason, ready, stalled):
    """One condition is True with the verdict's words, the other False and Finished; kstatus reads the end as its own.

    Ready is True of what has succeeded, and Stalled of what has failed.
    """
    conditions = said(make_cluster(), world, Ledger(verdict=Verdict(kind, reason, "the words")))

    other = {"Failed": "Succeeded", "Succeeded": "Failed"}[kind]
    assert (told(conditions[kind]), conditions[kind]["message"]) == (("True", reason), "the words")
    assert told(conditions[other]) == ("False", "Finished")
    assert (told(conditions["Ready"]), conditions["Ready"]["message"]) == (ready, "the words")
    assert told(conditions["Stalled"]) == stalled
    assert told(conditions["MembershipPublished"]) == ("True", "Finished")


def test_cluster_under_way_says_what_it_aims_at(world):
    """Neither end is true, and the messages name the tasks that decide and the limit."""
    conditions = said(make_cluster(backoffLimit=3), world)

    assert told(conditions["Succeeded"]) == told(conditions["Failed"]) == ("False", "NotFinished")
    assert "all tasks of chief" in conditions["Succeeded"]["message"]
    assert "at most 3 restarts" in conditions["Failed"]["message"]
    assert "at most" not in said(make_cluster(), world)["Failed"]["message"]


def test_verdict_keeps_the_generation_by_which_it_was_judged(world):
    """A later edit moves every other condition's generation, and Ready says that it has no effect."""
    first = said(make_cluster(generation=3), world, Ledger(verdict=FAILED))
    status = {"conditions": list(first.values())}
    known = read_ledger(status)

    same = said(make_cluster(generation=3, status=status), world, known)
    later = said(make_cluster(generation=4, status=status), world, known)

    assert "no effect" not in same["Ready"]["message"]
    assert later["Ready"]["message"].endswith("edits after generation 3 have no effect")
    generations = {kind: condition["observedGeneration"] for kind, condition in later.items()}
    assert generations == {**dict.fromkeys(generations, 4), "Failed": 3}


def test_suspension_is_told_and_has_no_effect_on_an_end(world):
    """A suspended cluster says so in two conditions; a finished one says that suspend changes nothing."""
    suspended, running = make_cluster(suspend=True), make_cluster()

    assert told(said(running, world)["Suspended"]) == ("False", "NotSuspended")
    assert told(said(suspended, world)["Suspended"]) == ("True", "Suspended")
    assert told(said(suspended, world)["Ready"]) == ("False", "Suspended")
    assert told(said(suspended, world)["UpToDate"]) == ("True", "AllCurrent")
    finished = said(suspended, world, Ledger(verdict=FAILED))
    assert told(finished["Suspended"]) == ("False", "Finished")
    assert "has no effect" in finished["Suspended"]["message"]
    assert told(finished["Ready"]) == ("False", "TaskFailed")


@pytest.mark.parametrize("reason", [reasons.BACKING_OFF, reasons.WAITING_FOR_JOB, reasons.STUCK_TERMINATING])
def test_what_waits_is_told_unless_all_that_gate_are_ready(reason):
    """An evaluator that fails does not make a cluster unready whose other tasks all work."""
    cluster = make_cluster({"chief": 1, "evaluator": 1})
    world = settled(cluster)
    findings = [Finding(reason, "it waits")]

    assert told(said(cluster, world, findings=findings)["Ready"]) == ("True", "AllTasksReady")
    world.pod_runs("demo-chief-0", conditions=[])
    assert told(said(cluster, world, findings=findings)["Ready"]) == ("False", reason)


def test_evaluator_gates_nothing():
    """It looks on: a cluster whose other tasks work is ready, whatever becomes of it."""
    cluster = make_cluster({"chief": 1, "evaluator": 1})
    world = settled(cluster)
    world.pod_runs("demo-evaluator-0", conditions=[])

    ready = said(cluster, world)["Ready"]

    assert (told(ready), ready["message"]) == (("True", "AllTasksReady"), "1 of 1 ready")


def test_evaluator_alone_gates_itself():
    """A cluster of nothing else is ready when it is."""
    cluster = make_cluster({"evaluator": 1})
    world = settled(cluster)

    assert told(said(cluster, world)["Ready"]) == ("True", "AllTasksReady")
    world.pod_runs("demo-evaluator-0", conditions=[])
    assert said(cluster, world)["Ready"]["message"].startswith("0 of 1 tasks are ready; evaluator-0")


def test_completed_tasks_are_not_waited_for(world):
    """They count as done, and their pods that are not ready are not named."""
    cluster = make_cluster()
    world.pod_ends("demo-worker-0", "Succeeded")
    known = Ledger(jobs={"worker": JobRecord(completed=frozenset({0}))})
    ready = said(cluster, world, known)["Ready"]
    assert (told(ready), ready["message"]) == (("True", "AllTasksReady"), "2 of 3 ready, 1 finished")

    world.pod_runs("demo-worker-1", conditions=[])

    assert said(cluster, world, known)["Ready"]["message"] == "1 of 3 tasks are ready; worker-1: not ready yet"


# --- rollouts


def edited(**strategy):
    """Declare another image for the workers."""
    worker = {"replicas": 2, "template": OTHER}
    return make_cluster({"chief": 1, "worker": worker}, **({"updateStrategy": strategy} if strategy else {}))


def test_older_pods_are_told_with_the_field_that_changed(world):
    """UpToDate counts them, and names the field where it is known."""
    condition = said(edited(), world, changed={"worker": "containers[task].image"})["UpToDate"]

    assert told(condition) == ("False", "RollingOut")
    words = "2 of 2 pods of job worker have an older template (containers[task].image changed)"
    assert condition["message"] == words
    assert "(" not in said(edited(), world)["UpToDate"]["message"]
    assert told(said(make_cluster(), world)["UpToDate"]) == ("True", "AllCurrent")


def test_pods_that_leave_are_still_old(world):
    """A rollout is not over while the last pod of the older template terminates."""
    for name in ("demo-worker-0", "demo-worker-1"):
        world.delete("Pod", name)

    assert told(said(edited(), world)["UpToDate"]) == ("False", "RollingOut")


def test_on_delete_waits_for_the_user(world):
    """The message says what to do."""
    condition = said(edited(type="OnDelete"), world)["UpToDate"]

    assert told(condition) == ("False", "WaitingForDelete")
    assert "delete the pods" in condition["message"]


def test_rolling_update_stalls_where_a_new_pod_has_trouble(world):
    """It names the task and its trouble; a new pod that is only slow is waited for."""
    cluster = edited(type="RollingUpdate")
    world.apply_all(world.plan(cluster).actions, cluster)
    world.end_graceful_deletions()
    world.apply_all(world.plan(cluster).actions, cluster)
    slow = said(cluster, world)["UpToDate"]
    assert told(slow) == ("False", "RollingOut")
    assert slow["message"].endswith("1 of 2 pods of job worker have an older template; next when worker-1 is ready")

    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    world.edit("Pod", "demo-worker-1", {"status": {"containerStatuses": [{"name": "task", "state": waiting}]}})

    stalled = said(cluster, world)["UpToDate"]
    assert told(stalled) == ("False", "RolloutStalled")
    assert stalled["message"].endswith("next when worker-1 is ready: ImagePullBackOff: not found")


def test_stall_of_one_job_is_not_hidden_by_another():
    """A later job that rolls on well does not make the rollout healthy."""
    jobs = {"ps": 2, "worker": 2}
    world = settled(make_cluster(jobs))
    changed = {name: {"replicas": 2, "template": OTHER} for name in jobs}
    cluster = make_cluster(changed, updateStrategy={"type": "RollingUpdate"})
    world.apply_all(world.plan(cluster).actions, cluster)
    world.end_graceful_deletions()
    world.apply_all(world.plan(cluster).actions, cluster)
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "it crashes"}}
    world.edit("Pod", "demo-ps-1", {"status": {"containerStatuses": [{"name": "task", "state": waiting}]}})

    assert told(said(cluster, world)["UpToDate"]) == ("False", "RolloutStalled")


def test_recreate_waits_for_no_task(world):
    """Only a rolling update goes on when another task is ready."""
    world.pod_runs("demo-chief-0", conditions=[])
    world.delete("Pod", "demo-worker-1")
    world.end_graceful_deletions()

    assert "next when" not in said(edited(), world)["UpToDate"]["message"]
    assert "next when worker-1 is ready" in said(edited(type="RollingUpdate"), world)["UpToDate"]["message"]


def test_finished_cluster_rolls_nothing(world):
    """An edit after the end has no effect, and UpToDate does not ask for one."""
    known = replace(world.ledger, verdict=FAILED)

    assert told(said(edited(), world, known)["UpToDate"]) == ("True", "AllCurrent")


def test_a_cluster_in_which_no_job_decides_says_so():
    """An evaluator alone never makes a cluster succeed: the condition says what would."""
    cluster = make_cluster({"evaluator": 1})
    condition = said(cluster, settled(cluster))["Succeeded"]

    assert told(condition) == ("False", "NotFinished")
    assert condition["message"] == (
        "no job decides when the cluster has succeeded: name one in spec.successPolicy.jobs"
    )
