"""The conditions in a cluster's life: its end, its suspension, its rollouts, and its waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from in_memory import NOW, TEMPLATE, make_cluster, merge_patch, running, settled

from tfcluster_operator.declaration.ledger import JobRecord, Ledger, Verdict
from tfcluster_operator.declaration.ledger import read as read_ledger
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.life.views import views_of
from tfcluster_operator.report.conditions import CONDITION_TYPES, with_others
from tfcluster_operator.report.status import status_of

OTHER = merge_patch(TEMPLATE, {"spec": {"containers": [{"name": "task", "image": "image:2"}]}})
FAILED = Verdict("Failed", "TaskFailed", "worker-0 failed")


def said(cluster, world, known=None, *, findings=(), changed=None):
    known = known or world.ledger
    roster = call_roll(cluster, world.observe(cluster)).completed_by(known)
    status = status_of(roster, known, views_of(roster).of_jobs, findings, NOW, changed=changed)
    return {condition["type"]: condition for condition in status["conditions"]}


def told(condition):
    return condition["status"], condition["reason"]


def test_every_condition_of_ours_is_known_as_such(world):
    assert set(said(make_cluster(), world)) == CONDITION_TYPES


def test_conditions_of_others_are_taken_as_they_are_by_now():
    audited = {"type": "example.test/Audited", "status": "True"}
    ready = {"type": "Ready", "status": "True"}
    ours = {"epoch": 3, "conditions": [ready, {"type": "example.test/Gone", "status": "True"}]}
    latest = {"epoch": 2, "conditions": [audited, {"type": "Ready", "status": "False"}]}
    assert with_others(ours, latest) == {"epoch": 3, "conditions": [ready, audited]}


@pytest.fixture
def world():
    return settled(make_cluster())


@pytest.mark.parametrize(
    ("kind", "reason", "ready", "stalled"),
    [
        ("Failed", "TaskFailed", ("False", "TaskFailed"), ("True", "TaskFailed")),
        ("Succeeded", "TasksSucceeded", ("True", "Succeeded"), ("False", "NotStalled")),
    ],
)
def test_end_is_one_of_two(world, kind, reason, ready, stalled):
    """One condition is True with the verdict's message, the other False and Finished; kstatus has its own.

    Ready is True after success, and Stalled after failure.
    """
    conditions = said(make_cluster(), world, Ledger(verdict=Verdict(kind, reason, "the words")))
    other = {"Failed": "Succeeded", "Succeeded": "Failed"}[kind]
    assert (told(conditions[kind]), conditions[kind]["message"]) == (("True", reason), "the words")
    assert told(conditions[other]) == ("False", "Finished")
    assert (told(conditions["Ready"]), conditions["Ready"]["message"]) == (ready, "the words")
    assert told(conditions["Stalled"]) == stalled
    assert told(conditions["MembershipPublished"]) == ("True", "Finished")


def test_cluster_under_way_says_what_it_aims_at(world):
    conditions = said(make_cluster(backoffLimit=3), world)
    assert told(conditions["Succeeded"]) == told(conditions["Failed"]) == ("False", "NotFinished")
    assert "all tasks of chief" in conditions["Succeeded"]["message"]
    assert "at most 3 restarts" in conditions["Failed"]["message"]
    assert "at most" not in said(make_cluster(), world)["Failed"]["message"]


def test_verdict_condition_keeps_its_generation(world):
    first = said(make_cluster(generation=3), world, Ledger(verdict=FAILED))
    status = {"conditions": list(first.values())}
    known = read_ledger(status)
    same = said(make_cluster(generation=3, status=status), world, known)
    later = said(make_cluster(generation=4, status=status), world, known)
    assert "no effect" not in same["Ready"]["message"]
    assert later["Ready"]["message"].endswith("edits after generation 3 are ignored")
    generations = {kind: condition["observedGeneration"] for kind, condition in later.items()}
    assert generations == {**dict.fromkeys(generations, 4), "Failed": 3}


def test_suspension_is_reported_and_ignored_after_the_end(world):
    suspended, running = make_cluster(suspend=True), make_cluster()
    assert told(said(running, world)["Suspended"]) == ("False", "NotSuspended")
    assert told(said(suspended, world)["Suspended"]) == ("True", "Suspended")
    assert told(said(suspended, world)["Ready"]) == ("False", "Suspended")
    assert told(said(suspended, world)["UpToDate"]) == ("True", "AllCurrent")
    finished = said(suspended, world, Ledger(verdict=FAILED))
    assert told(finished["Suspended"]) == ("False", "Finished")
    assert "is ignored" in finished["Suspended"]["message"]
    assert told(finished["Ready"]) == ("False", "TaskFailed")


@pytest.mark.parametrize(
    ("jobs", "ready", "words"),
    [
        ({"chief": 1, "evaluator": 1}, "True", "1 of 1 ready"),
        ({"evaluator": 1}, "False", "0 of 1 tasks are ready; evaluator-0: not ready yet"),
    ],
)
def test_evaluator_gates_itself_alone(jobs, ready, words):
    cluster, world = running(jobs)
    assert told(said(cluster, world)["Ready"]) == ("True", "AllTasksReady")
    world.pod_runs("demo-evaluator-0", conditions=[])
    found = said(cluster, world)["Ready"]
    assert (found["status"], found["message"]) == (ready, words)


def test_completed_tasks_are_not_waited_for(world):
    cluster = make_cluster()
    world.pod_ends("demo-worker-0", "Succeeded")
    known = Ledger(jobs={"worker": JobRecord(completed=frozenset({0}))})
    ready = said(cluster, world, known)["Ready"]
    assert (told(ready), ready["message"]) == (("True", "AllTasksReady"), "2 of 3 ready, 1 finished")
    world.pod_runs("demo-worker-1", conditions=[])
    assert said(cluster, world, known)["Ready"]["message"] == "1 of 3 tasks are ready; worker-1: not ready yet"


# --- rollouts
def edited(**strategy):
    worker = {"replicas": 2, "template": OTHER}
    return make_cluster({"chief": 1, "worker": worker}, updateStrategy=strategy or {"type": "Recreate"})


def test_older_pods_are_reported_with_the_changed_field(world):
    condition = said(edited(), world, changed={"worker": "containers[task].image"})["UpToDate"]
    assert told(condition) == ("False", "RollingOut")
    words = "2 of 2 pods of job worker have an older template (containers[task].image changed)"
    assert condition["message"] == words
    assert "(" not in said(edited(), world)["UpToDate"]["message"]
    assert told(said(make_cluster(), world)["UpToDate"]) == ("True", "AllCurrent")


def test_pods_that_leave_are_still_old(world):
    for name in ("demo-worker-0", "demo-worker-1"):
        world.delete("Pod", name)
    assert told(said(edited(), world)["UpToDate"]) == ("False", "RollingOut")
    waits = said(edited(type="OnDelete"), world)["UpToDate"]
    assert (told(waits), "delete the pods" in waits["message"]) == (("False", "WaitingForDelete"), True)
    known = replace(world.ledger, verdict=FAILED)
    assert told(said(edited(), world, known)["UpToDate"]) == ("True", "AllCurrent"), "a finished cluster rolls nothing"


def replace_one(world, cluster):
    for _ in range(2):
        world.apply_all(world.plan(cluster).actions, cluster)
        world.end_graceful_deletions()


def has_trouble(world, pod, reason):
    waiting = {"waiting": {"reason": reason, "message": "it fails"}}
    world.edit("Pod", pod, {"status": {"containerStatuses": [{"name": "task", "state": waiting}]}})


def test_rolling_update_stalls_where_a_new_pod_has_trouble(world):
    cluster = edited(type="RollingUpdate")
    replace_one(world, cluster)
    slow = said(cluster, world)["UpToDate"]
    assert told(slow) == ("False", "RollingOut")
    assert slow["message"].endswith(
        "1 of 2 pods of job worker have an older template; waiting for worker-1 to become ready"
    )
    has_trouble(world, "demo-worker-1", "ImagePullBackOff")
    stalled = said(cluster, world)["UpToDate"]
    assert told(stalled) == ("False", "RolloutStalled")
    assert stalled["message"].endswith("waiting for worker-1 to become ready: ImagePullBackOff: it fails")


def test_stall_of_one_job_is_not_hidden_by_another():
    jobs = {"ps": 2, "worker": 2}
    world, changed = settled(make_cluster(jobs)), {name: {"replicas": 2, "template": OTHER} for name in jobs}
    cluster = make_cluster(changed, updateStrategy={"type": "RollingUpdate"})
    replace_one(world, cluster)
    has_trouble(world, "demo-ps-1", "CrashLoopBackOff")
    assert told(said(cluster, world)["UpToDate"]) == ("False", "RolloutStalled")


def test_recreate_waits_for_no_task(world):
    world.pod_runs("demo-chief-0", conditions=[])
    world.delete("Pod", "demo-worker-1")
    world.end_graceful_deletions()
    assert "to become ready" not in said(edited(), world)["UpToDate"]["message"]
    assert "waiting for worker-1 to become ready" in said(edited(type="RollingUpdate"), world)["UpToDate"]["message"]


def test_cluster_without_a_deciding_job_is_reported():
    cluster = make_cluster({"evaluator": 1})
    condition = said(cluster, settled(cluster))["Succeeded"]
    assert told(condition) == ("False", "NotFinished")
    assert condition["message"] == ("spec.successPolicy.jobs is empty: set the jobs that decide")
