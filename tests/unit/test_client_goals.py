"""What is waited for is judged from the newest report, and what cannot come ends the wait."""

from __future__ import annotations

import threading

import pytest
from support.waiting import GUARD

from tfcluster.errors import ClusterFailedError, NoClusterError, WaitTimeoutError
from tfcluster.goals import Goal


def body(*conditions, spec=None, generation=2, observed=2, **status):
    return {
        "metadata": {"name": "c", "generation": generation},
        "spec": {"jobs": {"worker": {"replicas": 2}}, **(spec or {})},
        "status": {
            "observedGeneration": observed,
            "conditions": [{"type": kind, "status": value, "message": words} for kind, value, words in conditions],
            **status,
        },
    }


READY = ("Ready", "True", "all tasks are ready")
FAILED = ("Failed", "True", "worker-1 ended with exit code 3")
STALLED = ("Stalled", "True", "worker-1 ended with exit code 3")
PUBLISHED = ("MembershipPublished", "True", "every pod has its newest view")


@pytest.mark.parametrize(
    ("goal", "found", "outcome"),
    [
        ("ready", body(READY), "reached"),
        ("ready", body(READY, observed=1), "waiting"),
        ("ready", body(("Ready", "False", "worker-0 is not ready")), "waiting"),
        ("ready", body(("Ready", "False", "it has failed"), FAILED, STALLED), "impossible"),
        ("ready", body(("Ready", "False", "suspended"), spec={"suspend": True}), "impossible"),
        ("succeeded", body(READY, ("Succeeded", "True", "all exited with 0")), "reached"),
        ("succeeded", body(FAILED, STALLED), "impossible"),
        ("failed", body(FAILED, STALLED), "reached"),
        ("finished", body(FAILED, STALLED), "reached"),
        ("finished", body(READY), "waiting"),
        ("suspended", body(READY), "impossible"),
        ("suspended", body(("Suspended", "True", "no pods"), spec={"suspend": True}), "reached"),
        ("resized", body(("Ready", "False", "no room in time"), ("Stalled", "True", "no room in time")), "impossible"),
        ("resized", body(READY, PUBLISHED, jobs={"worker": {"created": 2, "ready": 2}}), "reached"),
        ("resized", body(READY, PUBLISHED, jobs={"worker": {"created": 1, "ready": 1}}), "waiting"),
        ("resized", body(READY, PUBLISHED, jobs={"worker": {"created": 3, "ready": 3}}), "waiting"),
        ("resized", body(READY, jobs={"worker": {"created": 2, "ready": 2}}), "waiting"),
        ("deleted", body(READY), "waiting"),
        ("deleted", None, "reached"),
        ("ready", None, "impossible"),
        ("condition=Queued", body(READY), "waiting"),
        ("condition=Queued=false", body(("Queued", "False", "admitted")), "reached"),
    ],
)
def test_goal_is_judged(goal, found, outcome):
    """Each goal is reached, may still come, or cannot come any more."""
    assert Goal.of(goal).judge(found).outcome == outcome


@pytest.mark.parametrize(("reason", "outcome"), [("WaitingForQuota", "impossible"), ("GangTimeout", "reached")])
def test_who_waits_in_a_queue_is_not_suspended(reason, outcome):
    """It has no pods either, and starts by itself; one whose gang gave up stays as it is."""
    found = body(("Suspended", "True", "no pods"))
    found["status"]["conditions"][0]["reason"] = reason

    assert Goal.of("suspended").judge(found).outcome == outcome


def test_words_name_the_cause():
    """What cannot come says why, in the operator's words."""
    assert Goal.of("ready").judge(body(FAILED, STALLED)).words == "it has failed: worker-1 ended with exit code 3"


def test_another_word_is_refused():
    """The message lists what can be waited for."""
    with pytest.raises(ValueError, match=r"wait for one of ready, succeeded"):
        Goal.of("done")


def test_wait_returns_when_the_tasks_are_ready(client_world):
    """It tells what is missing on the way."""
    client_world.declare("digits", {"worker": {"replicas": 2}})
    told = []
    with client_world.client() as client:
        found = client.wait("digits", timeout=GUARD, tell=told.append)

    assert found["status"]["ready"] == "2/2"
    assert told


def test_wait_believes_no_report_from_before_an_edit(client_world):
    """Directly after a scale-up, the cluster that was ready before is waited for again."""
    client_world.declare("digits", {"worker": {"replicas": 1, "maxReplicas": 4}})
    with client_world.client() as client:
        client.wait("digits", timeout=GUARD)
        client.scale("digits", 3)

        assert client.wait("digits", timeout=GUARD)["status"]["ready"] == "3/3"
        assert client.wait("digits", "resized", timeout=GUARD)["status"]["jobs"]["worker"]["ready"] == 3


def test_wait_ends_early_where_the_cluster_failed(client_world):
    """A failed cluster never becomes ready: nobody waits for the time-out."""
    client_world.declare("digits", {"worker": {"restartPolicy": "Never"}})
    with client_world.client() as client:
        client.wait("digits", timeout=GUARD)
        client_world.at_once(lambda: client_world.nodes.exit("digits-worker-0", 3))

        with pytest.raises(ClusterFailedError, match="exit code 3"):
            client.wait("digits", "succeeded", timeout=GUARD)


def test_wait_names_what_was_missing_at_its_time_out(client_world):
    """The words are the operator's."""
    client_world.at_once(lambda: client_world.nodes.never_ready.add("digits-worker-0"))
    client_world.declare("digits", {"worker": {}})
    with (
        client_world.client() as client,
        pytest.raises(WaitTimeoutError, match=r"did not become ready within 2 s: .*task"),
    ):
        client.wait("digits", timeout=2)


def test_wait_hears_of_a_deletion(client_world):
    """Whoever waits for a cluster that is deleted meanwhile is told so; whoever waits for that is done."""
    client_world.at_once(lambda: client_world.nodes.never_ready.add("digits-worker-0"))
    client_world.declare("digits", {"worker": {}})
    with client_world.client() as client:
        deletion = threading.Timer(0.5, client.delete, ["digits"])
        deletion.start()

        with pytest.raises(ClusterFailedError, match="deleted"):
            client.wait("digits", timeout=GUARD)
        assert client.wait("digits", "deleted", timeout=GUARD) is None
        with pytest.raises(NoClusterError):
            client.wait("digits", timeout=GUARD)
