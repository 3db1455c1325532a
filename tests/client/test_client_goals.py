"""What is waited for is judged from the newest report; events are those of the cluster and its pods, in order."""

import json
import threading

import pytest
from support.waiting import GUARD

from tfcluster.client import Client
from tfcluster.errors import ClusterFailedError, NoClusterError, WaitTimeoutError
from tfcluster.events import events_of, news
from tfcluster.wait import judge


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
    ],
)
def test_goal_is_judged(goal, found, outcome):
    assert judge(goal, found).outcome == outcome


@pytest.mark.parametrize(("reason", "outcome"), [("WaitingForQuota", "impossible"), ("GangTimeout", "reached")])
def test_who_waits_in_a_queue_is_not_suspended(reason, outcome):
    found = body(("Suspended", "True", "no pods"))
    found["status"]["conditions"][0]["reason"] = reason
    assert judge("suspended", found).outcome == outcome


def test_message_names_the_cause():
    assert judge("ready", body(FAILED, STALLED)).words == "it has failed: worker-1 ended with exit code 3"


def test_wait_is_for_the_tasks_and_believes_no_report_from_before_an_edit(client_world):
    client_world.declare("digits", worker={"replicas": 2, "maxReplicas": 4})
    told = []
    with client_world.client() as client:
        status = client.wait("digits", timeout=GUARD, tell=told.append)["status"]
        assert (status["readyTasks"], status["tasks"]) == (2, 2)
        assert told
        client.scale("digits", 3)
        status = client.wait("digits", timeout=GUARD)["status"]
        assert (status["readyTasks"], status["tasks"]) == (3, 3)
        assert client.wait("digits", "resized", timeout=GUARD)["status"]["jobs"]["worker"]["ready"] == 3


def test_wait_ends_early_where_the_cluster_failed(client_world):
    client_world.declare("digits", worker={"restartPolicy": "Never"})
    with client_world.client() as client:
        client.wait("digits", timeout=GUARD)
        client_world.exit("digits-worker-0", 3)
        with pytest.raises(ClusterFailedError, match="exit code 3"):
            client.wait("digits", "succeeded", timeout=GUARD)


def test_wait_reports_the_missing_part_at_time_out_and_a_deletion(client_world):
    client_world.keep_unready("digits-worker-0")
    client_world.declare("digits", worker=1)
    with client_world.client() as client:
        with pytest.raises(WaitTimeoutError, match=r"did not become ready within 2 s: .*task"):
            client.wait("digits", timeout=2)
        threading.Timer(0.5, client.delete, ["digits"]).start()
        with pytest.raises(ClusterFailedError, match="deleted"):
            client.wait("digits", timeout=GUARD)
        assert client.wait("digits", "deleted", timeout=GUARD) is None
        with pytest.raises(ValueError, match=r"wait for one of ready, succeeded"):
            client.wait("digits", "done")
        with pytest.raises(NoClusterError):
            client.wait("digits", timeout=GUARD)


CLUSTER = {
    "metadata": {"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:10Z"},
    "spec": {"jobs": {"my_job": {}, "ps": {}}},
}


def event(kind, name, at, *, reason="R", uid="", count=1, number="1", **fields):
    return {
        "metadata": {"name": f"e{number}", "uid": f"e{number}"},
        "involvedObject": {"kind": kind, "name": name, **({"uid": uid} if uid else {})},
        "reason": reason,
        "message": "it\nhappened\x1b[31m",
        "type": "Normal",
        "count": count,
        "lastTimestamp": f"2026-01-01T00:00:{at:02}Z",
        **fields,
    }


def test_events_are_those_of_the_cluster_and_its_pods():
    events = [
        event("Pod", "a-my-job-1", 30, number="4"),
        event("TFCluster", "a", 20, uid="u", number="2"),
        event("Pod", "a-ps-0-r2", 25, number="3", count=4),
        event("Pod", "ab-ps-0", 25),  # of cluster ab
        event("Pod", "a-b-ps-0", 25),  # of cluster a-b
        event("Service", "a", 25),
        event("TFCluster", "a", 25, uid="of-an-earlier-one"),
        event("Pod", "a-ps-0", 5),  # before the cluster was created
    ]
    found = events_of("a", CLUSTER, events)
    expected = [("", "e2", 1), ("ps-0", "e3", 4), ("my-job-1", "e4", 1)]
    assert [(one.about, one.uid, one.count) for one in found] == expected
    assert not {"\x1b", "\n"} & {*found[0].message}, "words of others steer no terminal"


def of_pod(at, number, **fields):
    return event("Pod", "a-ps-0", at, number=number, **fields)


def test_times_of_every_spelling_are_read():
    series = {"series": {"count": 7, "lastObservedTime": "2026-01-01T00:00:40.123456Z"}}
    newer = {"lastTimestamp": None, "eventTime": "2026-01-01T00:00:31.000001Z"}
    found = events_of("a", CLUSTER, [of_pod(20, "1", **series), of_pod(20, "2", **newer)])
    assert [(one.uid, one.count) for one in found] == [("e2", 1), ("e1", 7)]


def test_what_happens_again_is_news():
    first = events_of("a", CLUSTER, [of_pod(20, "1"), of_pod(21, "2")])
    second = events_of("a", CLUSTER, [of_pod(20, "1"), of_pod(30, "2", count=2)])
    assert [(one.uid, one.count) for one in news({one.uid: one for one in first}, second)] == [("e2", 2)]


def test_events_remain_after_deletion_of_the_cluster(client_world):
    client_world.launch("digits", worker=1)
    shown = client_world.ok("events", "digits", "--warnings")
    assert (shown.stdout, "There is no warning of digits" in shown.stderr) == ("", True)
    assert " cluster " in client_world.cli("events", "digits").stdout
    with client_world.client() as client:
        assert [one.reason for one in client.events("digits")] == ["Created"]
        client.delete("digits", wait=True, timeout=GUARD)
        assert [one.reason for one in client.events("digits")] == ["Created"]
        with pytest.raises(NoClusterError):
            list(client.events("letters"))


def test_follow_ends_with_deletion_of_the_cluster(client_world, monkeypatch):
    client_world.launch("digits", worker=2)
    events = Client.events

    def answered(self, *words, **options):
        """Resize and delete the cluster in answer to what was printed."""
        for one in events(self, *words, **options):
            yield one
            if one.reason == "Created":
                self.scale("digits", 1)
            if one.reason == "ScaledDown":
                self.delete("digits")

    monkeypatch.setattr(Client, "events", answered)
    lines = client_world.ok("events", "digits", "--follow", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["reason"] for line in lines][:3] == ["Created", "ViewChanged", "ScaledDown"]
