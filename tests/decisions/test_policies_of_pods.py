"""Policies that start, replace and delete pods: their decisions, and when they do not apply."""

from dataclasses import replace

import pytest
from in_memory import NOW, make_cluster
from observed_pods import ended, pod, roster

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.ledger import Failing, JobRecord, Ledger, Verdict
from tfcluster_operator.life import departures, gangs
from tfcluster_operator.life.stock import judge_deadline, seconds_left


# --- deadline
@pytest.mark.parametrize(
    ("limit", "started", "now", "over"),
    [
        (60, NOW, NOW + 59.9, False),
        (60, NOW, NOW + 60, True),
        (0, NOW, NOW, True),
        (None, NOW, NOW + 1e9, False),
        (60, 0.0, NOW, False),
    ],
)
def test_deadline_counts_from_the_start(limit, started, now, over):
    cluster = make_cluster({"worker": 1}, **({"activeDeadlineSeconds": limit} if limit is not None else {}))
    found = judge_deadline(cluster, Ledger(started_at=started), now)
    assert (found is not None) is over
    assert not over or (found.kind, found.reason) == ("Failed", "DeadlineExceeded")


DEADLINE, TTL = {"activeDeadlineSeconds": 60}, {"ttlSecondsAfterFinished": 60}
STARTED = Ledger(started_at=NOW - 10)
FINISHED = Ledger(started_at=NOW - 100, finished_at=NOW - 20, verdict=Verdict("Failed", "R", "M"))


@pytest.mark.parametrize(
    ("spec", "known", "left"),
    [
        (DEADLINE, STARTED, 50),
        (DEADLINE, Ledger(), None),
        (DEADLINE, FINISHED, None),
        (TTL, STARTED, None),
        ({**TTL, **DEADLINE}, FINISHED, 40),
        ({"ttlSecondsAfterFinished": 0}, FINISHED, -20),
    ],
)
def test_time_left_is_of_the_deadline_or_then_of_the_ttl(spec, known, left):
    assert seconds_left(make_cluster({"worker": 1}, **spec), known, NOW) == left


# --- start order


AFTER_PS = {"ps": 2, "worker": {"startAfter": ["ps"]}}
SEVERAL = {"ps": 2, "chief": 1, "dw": 0, "worker": {"startAfter": ["chief", "dw", "ps"]}}
PS, OTHER_PS = pod("demo-ps-0", uid="p0"), pod("demo-ps-1", uid="p1")
EARLIER = {naming.ANNOTATION_INCARNATION: "1"}


def record(**fields):
    return {"worker": JobRecord(**fields)}


@pytest.mark.parametrize(
    ("jobs", "pods", "known", "awaited"),
    [
        (AFTER_PS, [PS, OTHER_PS], {}, []),
        (AFTER_PS, [], {}, ["ps (0 of 2 ready)"]),
        (AFTER_PS, [PS], {}, ["ps (1 of 2 ready)"]),
        (AFTER_PS, [PS, replace(OTHER_PS, ready=False)], {}, ["ps (1 of 2 ready)"]),
        (AFTER_PS, [PS, pod("demo-ps-1", owner="other")], {}, ["ps (1 of 2 ready)"]),
        (AFTER_PS, [PS, pod("demo-ps-1", annotations=EARLIER)], {}, ["ps (1 of 2 ready)"]),
        (AFTER_PS, [PS, pod("demo-ps-1", leaving=NOW)], {}, ["ps (1 of 2 ready)"]),
        (AFTER_PS, [PS], {"ps": JobRecord(completed=frozenset({1}))}, []),
        (AFTER_PS, [], record(started=frozenset({0})), []),
        (AFTER_PS, [], record(failing={0: Failing(1, NOW)}), []),
        (AFTER_PS, [], record(begun=True), []),
        (SEVERAL, [PS], {}, ["chief (0 of 1 ready)", "ps (1 of 2 ready)"]),
    ],
)
def test_job_starts_when_every_earlier_task_is_ready_or_complete(jobs, pods, known, awaited):
    cluster, known = make_cluster(jobs), Ledger(jobs=known)
    assert gangs.awaited_jobs(roster(cluster, *pods, known=known), cluster.job("worker"), known) == awaited


# --- rollout
def _rollout(strategy, *states, known=None):
    """Plan the rollout of a job whose pods are each "new", "old", or one of these and "down"."""
    cluster = make_cluster({"worker": len(states)}, updateStrategy=strategy)
    job = cluster.jobs[0]
    hashes = {"new": job.template_hash, "old": "older"}
    pods = [
        pod(
            f"demo-worker-{index}",
            uid=str(index),
            annotations={naming.ANNOTATION_TEMPLATE_HASH: hashes[state[:3]]},
            ready="down" not in state,
            leaving=NOW if "leaving" in state else 0.0,
        )
        for index, state in enumerate(states)
        if state != "gone"
    ]
    found = departures.rollout_of(roster(cluster, *pods, known=known), job)
    return found, [one.meta.uid for one in departures.to_replace(cluster, found)]


def rolling(max_unavailable):
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}}


ROLLING, TWO, HALF = rolling(1), rolling(2), rolling("50%")


@pytest.mark.parametrize(
    ("strategy", "states", "replaced"),
    [
        ({"type": "Recreate"}, ["old", "new", "old down", "old leaving"], ["0", "2"]),
        ({"type": "OnDelete"}, ["old", "old down"], []),
        (ROLLING, ["old", "old", "old"], ["2"]),
        (TWO, ["old", "old", "old"], ["2", "1"]),
        (rolling(9), ["old", "old"], ["1", "0"]),
        (ROLLING, ["old", "old", "new"], ["1"]),
        (ROLLING, ["old", "old", "new down"], []),
        (ROLLING, ["old", "old", "gone"], []),
        (ROLLING, ["old", "old", "old leaving"], []),
        (TWO, ["old", "old", "new down"], ["1"]),
        (ROLLING, ["old down", "old", "old"], ["0"]),
        (ROLLING, ["old", "old down", "new down"], ["1"]),
        (TWO, ["old", "old down", "old"], ["2", "1"]),
        (HALF, ["old", "old", "old", "old", "old"], ["4", "3"]),
        (HALF, ["old", "old", "old", "new down"], ["2"]),
    ],
)
def test_update_strategy_chooses_the_pods(strategy, states, replaced):
    assert _rollout(strategy, *states)[1] == replaced


def test_completed_task_is_never_rolled():
    known = Ledger(jobs={"worker": JobRecord(completed=frozenset({1}))})
    found, replaced = _rollout(ROLLING, "old", "old down", known=known)
    assert replaced == ["0"]
    assert found.unavailable == ()


def test_leaving_pod_of_an_old_template_is_still_old():
    found, _ = _rollout(ROLLING, "new", "old leaving")
    assert ([place.task.index for place in found.old], found.outdated) == ([1], ())


def test_pod_of_others_is_not_rolled():
    """It is not a pod of the task, so the task does not run."""
    cluster = make_cluster({"worker": 1})
    found = departures.rollout_of(roster(cluster, pod(owner="other")), cluster.jobs[0])
    assert (found.old, [str(place.task) for place in found.unavailable]) == ((), ["worker-0"])


# --- scale-down, clean-up, termination
def surplus_since(seconds):
    return pod(annotations={naming.ANNOTATION_SURPLUS_SINCE: str(int(NOW) + seconds)})


@pytest.mark.parametrize(
    ("drain", "what", "seconds"),
    [
        (0, pod(), 0),
        (30, pod(), 30),
        (30, surplus_since(-10), 20),
        (30, surplus_since(-30), 0),
        (30, surplus_since(3600), 30),
        (30, pod(phase="Pending"), 0),
        (30, ended(1), 0),
        (30, ended(0, phase="Running"), 0),
        (None, pod(), 0),
    ],
)
def test_surplus_pod_drains_while_it_works(drain, what, seconds):
    """A pod that does not run does not drain, and a removed job no longer has a drainTimeoutSeconds."""
    job = None if drain is None else make_cluster({"worker": {"drainTimeoutSeconds": drain}}).jobs[0]
    assert departures.seconds_to_drain(job, what, NOW) == seconds


@pytest.mark.parametrize(
    ("policy", "cleaned"), [("None", []), ("All", ["rests", "runs", "sidecar"]), ("Running", ["runs", "sidecar"])]
)
def test_clean_pod_policy_chooses_the_pods(policy, cleaned):
    pods = [
        pod("runs"),
        ended(1, name="rests"),
        ended(1, name="sidecar", phase="Running", at_rest=False),
        pod("foreign", owner="other"),
        pod("leaves", leaving=NOW),
    ]
    cluster = make_cluster({"worker": 1}, cleanPodPolicy=policy)
    assert sorted(one.meta.name for one in departures.pods_to_clean(roster(cluster, *pods))) == cleaned


@pytest.mark.parametrize(
    ("grace", "leaving", "left"),
    [(60, NOW - 30, 60), (60, NOW - 90, 0), (None, NOW - 900, None), (60, 0.0, None), (0, NOW, 30)],
)
def test_pod_is_freed_only_where_the_user_says_when(grace, leaving, left):
    cluster = make_cluster({"worker": 1}, **({"forceDeleteAfterSeconds": grace} if grace is not None else {}))
    assert departures.seconds_until_freed(cluster, pod(leaving=leaving), NOW) == left


def test_pod_is_stuck_ten_seconds_after_its_grace_period():
    """Not at the end of the grace period itself, which an obedient node can need."""
    assert departures.seconds_until_stuck(pod(leaving=NOW - 30), NOW) == 10.0


@pytest.mark.parametrize(
    ("grace", "node", "words"),
    [
        (None, "node-7", ["node node-7 has not confirmed", "set forceDeleteAfterSeconds", "--force"]),
        (60, "node-7", ["node node-7 has not confirmed", "force-deleted 60 s after"]),
        (None, "", ["its end is not confirmed"]),
    ],
)
def test_stuck_pod_is_reported_with_its_remedy(grace, node, words):
    cluster = make_cluster({"worker": 1}, **({"forceDeleteAfterSeconds": grace} if grace is not None else {}))
    told = departures.stuck_words(cluster, pod(node=node, leaving=NOW))
    assert all(word in told for word in ["demo-worker-0", *words])


def test_pod_kept_by_a_finalizer_is_reported_with_the_finalizer():
    """Its containers have ended, so neither the node nor a deletion by force has an effect."""
    kept = pod(leaving=NOW, grace=0.0)
    kept = replace(kept, meta=replace(kept.meta, finalizers=("example.com/keep",)))
    told = departures.stuck_words(make_cluster({"worker": 1}, forceDeleteAfterSeconds=5), kept)
    assert "the finalizer example.com/keep remains" in told
    assert "force" not in told
