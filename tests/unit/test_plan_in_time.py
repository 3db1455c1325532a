"""What the planner does by the clock: draining, scope pauses, deadlines, the time to live, and pods that do not go."""

from __future__ import annotations

import pytest
from in_memory import InMemoryWorld, make_cluster, settled, timestamp

from tfcluster_operator.model import naming, reasons
from tfcluster_operator.model.actions import Delete, DeleteCluster, Patch
from tfcluster_operator.model.spec import TFCluster


def reasons_of(planned):
    """Give the reason of each action."""
    return [action.reason for action in planned.actions]


def drained(seconds):
    """Declare fewer workers than run, which drain for so many seconds."""
    jobs = {"chief": 1, "worker": {"replicas": 3, "drainTimeoutSeconds": seconds}}
    world = settled(make_cluster(jobs))
    return make_cluster({**jobs, "worker": {"replicas": 1, "drainTimeoutSeconds": seconds}}), world


def test_surplus_pods_drain_before_they_go():
    """They are noted once, survivors are told meanwhile, and they go when the time is over, highest first."""
    cluster, world = drained(30)
    planned = world.plan(cluster)
    assert planned.wake_after == 30
    notes = [action for action in planned.actions if action.reason == reasons.DRAINING]
    assert [(type(note), note.name) for note in notes] == [(Patch, "demo-worker-2"), (Patch, "demo-worker-1")]
    assert not any(isinstance(action, Delete) for action in planned.actions)
    assert reasons.VIEW_CHANGED in reasons_of(planned)
    world.apply_all(planned.actions, cluster)

    world.now += 29.5
    planned = world.plan(cluster)
    assert (planned.actions, planned.wake_after) == ((), 0.5)

    world.now += 0.5
    planned = world.plan(cluster)
    assert [(action.name, action.reason) for action in planned.actions] == [
        ("demo-worker-2", reasons.SCALED_DOWN),
        ("demo-worker-1", reasons.SCALED_DOWN),
    ]


def test_surplus_pod_that_is_declared_again_forgets_that_it_drained():
    """The next scale-down gives it the whole time again."""
    cluster, world = drained(30)
    world.apply_all(world.plan(cluster).actions, cluster)
    world.now += 20
    jobs = {"chief": 1, "worker": {"replicas": 3, "drainTimeoutSeconds": 30}}

    world.apply_all(world.plan(make_cluster(jobs)).actions, make_cluster(jobs))

    annotations = world.objects["Pod", "demo-worker-2"]["metadata"]["annotations"]
    assert naming.ANNOTATION_SURPLUS_SINCE not in annotations
    assert world.plan(cluster).wake_after == 30


def test_scope_that_restarts_waits_together_and_says_so():
    """Its pods go at once and are made again when its pause is over, all at one time."""
    cluster = make_cluster({"worker": {"replicas": 3, "restartScope": "Job"}})
    world = settled(cluster)
    world.pod_ends("demo-worker-1", "Failed")
    planned = world.plan(cluster)
    assert reasons_of(planned) == [reasons.RESTARTED_TOGETHER, reasons.POD_KEPT, reasons.RESTARTED_TOGETHER]
    world.apply_all(planned.actions, cluster)
    world.end_graceful_deletions()

    planned = world.plan(cluster)
    assert planned.actions == ()
    (finding,) = planned.findings
    assert finding.reason == reasons.BACKING_OFF
    assert finding.message.startswith(
        "job worker is restarted after worker-1 failed: exit code 1; next try in 1 s, at "
    )
    assert 1.0 <= planned.wake_after <= 1.25

    world.now += planned.wake_after
    assert reasons_of(world.plan(cluster)) == [reasons.CREATED] * 3


@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_finished_cluster_goes_when_its_time_to_live_is_over(kind):
    """Not a moment earlier; the planner says when to come back."""
    cluster = make_cluster({"worker": {"restartPolicy": "Never"}}, ttlSecondsAfterFinished=100)
    world = settled(cluster)
    world.pod_ends("demo-worker-0", kind)
    world.apply_all(world.plan(cluster).actions, cluster)

    world.now += 99.5
    assert (world.plan(cluster).actions, world.plan(cluster).wake_after) == ((), 0.5)
    world.now += 0.5
    assert world.plan(cluster).actions == (DeleteCluster("demo", cluster.uid, reasons.TTL_EXPIRED),)


def test_deadline_wakes_the_operator():
    """The pass at that moment ends the cluster, and the pods that run are cleaned up."""
    world = settled(make_cluster({"worker": 2}))
    cluster = make_cluster({"worker": 2}, activeDeadlineSeconds=100)
    world.now += 40
    assert world.plan(cluster).wake_after == 60

    world.now += 60
    assert reasons_of(world.plan(cluster)) == [reasons.CLEANED_UP] * 2
    assert world.ledger.verdict.reason == "DeadlineExceeded"


def test_finished_cluster_makes_and_edits_nothing():
    """Neither a missing pod, nor another template, nor a drifted Service."""
    cluster = make_cluster({"chief": 1, "worker": 2}, cleanPodPolicy="None")
    world = settled(cluster)
    world.pod_ends("demo-chief-0", "Succeeded")
    world.delete("Pod", "demo-worker-1")
    world.end_graceful_deletions()
    del world.objects["Service", "demo"]
    world.plan(cluster)

    assert world.plan(make_cluster({"chief": 1, "worker": 5}, cleanPodPolicy="None", suspend=True)).actions == ()


def _stuck(grace):
    cluster = make_cluster({"worker": 1}, **({} if grace is None else {"forceDeleteAfterSeconds": grace}))
    world = settled(cluster)
    world.delete("Pod", "demo-worker-0")
    deletion = {"deletionTimestamp": timestamp(world.now + 30), "deletionGracePeriodSeconds": 30}
    world.edit("Pod", "demo-worker-0", {"metadata": deletion})
    return cluster, world


def test_pod_that_does_not_go_is_told():
    """Ten seconds after its grace period, and it blocks its name until it has gone."""
    cluster, world = _stuck(None)
    assert (world.plan(cluster).findings, world.plan(cluster).wake_after) == ((), 40)

    world.now += 40
    planned = world.plan(cluster)
    assert [finding.reason for finding in planned.findings] == [reasons.STUCK_TERMINATING]
    assert (planned.actions, planned.wake_after) == ((), None)


def test_pod_that_does_not_go_is_freed_where_the_user_says_so():
    """So long after its grace period, by force, and its task is replaced."""
    cluster, world = _stuck(5)
    assert world.plan(cluster).wake_after == 35

    world.now += 35
    (action,) = world.plan(cluster).actions
    assert (action.reason, action.force) == (reasons.FORCED, True)
    world.apply(action, cluster)
    assert reasons_of(world.plan(cluster)) == [reasons.POD_DISRUPTED]


@pytest.mark.parametrize(("strategy", "waits"), [("", False), ("RollingUpdate", False), ("Recreate", True)])
def test_a_job_that_has_started_waits_no_more(strategy, waits):
    """Its last pod is drained or rolled while what it started after is down; only all pods together wait again."""

    def declared(image: str) -> TFCluster:
        template = {"spec": {"containers": [{"name": "task", "image": image}]}}
        jobs = {"ps": 1, "worker": {"startAfter": ["ps"], "template": template}}
        return make_cluster(jobs, updateStrategy={"type": strategy or "Recreate"})

    world, cluster = settled(declared("image:1")), declared("image:2" if strategy else "image:1")
    world.settle(declared("image:1"))
    world.all_pods_run()
    world.pod_ends("demo-ps-0", "Failed")
    if not strategy:
        world.delete("Pod", "demo-worker-0")
    for _ in range(2):
        world.settle(cluster)
        world.end_graceful_deletions()
    world.settle(cluster)

    assert ("demo-worker-0" not in world.names("Pod")) == waits


def test_start_order_is_told():
    """Workers wait for the parameter servers, in words."""
    cluster = make_cluster({"ps": 2, "worker": {"startAfter": ["ps"]}})
    world = InMemoryWorld()
    world.apply_all(world.plan(cluster).actions, cluster)
    assert world.names("Pod") == {"demo-ps-0", "demo-ps-1"}
    world.pod_runs("demo-ps-1")

    (finding,) = world.plan(cluster).findings
    assert (finding.reason, finding.message) == (reasons.WAITING_FOR_JOB, "job worker starts after ps (1 of 2 ready)")
    world.pod_runs("demo-ps-0")
    assert [action.name for action in world.plan(cluster).actions if action.reason == reasons.CREATED] == [
        "demo-worker-0"
    ]
