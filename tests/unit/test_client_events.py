"""The events of a cluster and of its pods, in order, and none of somebody else's."""

from __future__ import annotations

import json

import pytest
from support.waiting import GUARD

from tfcluster.client import Client
from tfcluster.errors import NoClusterError
from tfcluster.event_log import events_of, news

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
    """Names alone decide of pods, which may be gone; jobs are spelled as TensorFlow does."""
    found = events_of(
        "a",
        CLUSTER,
        [
            event("Pod", "a-my-job-1", 30, number="4"),
            event("TFCluster", "a", 20, uid="u", number="2"),
            event("Pod", "a-ps-0-r2", 25, number="3", count=4),
            event("Pod", "ab-ps-0", 25),  # of cluster ab
            event("Pod", "a-b-ps-0", 25),  # of cluster a-b
            event("Service", "a", 25),
            event("TFCluster", "a", 25, uid="of-an-earlier-one"),
            event("Pod", "a-ps-0", 5),  # before the cluster was created
        ],
    )

    assert [(one.about, one.uid, one.count) for one in found] == [
        ("", "e2", 1),
        ("ps-0", "e3", 4),
        ("my-job-1", "e4", 1),
    ]


def test_words_of_others_steer_no_terminal():
    """A message is one line, without control characters."""
    (found,) = events_of("a", CLUSTER, [event("TFCluster", "a", 20, uid="u")])

    assert "\x1b" not in found.message
    assert "\n" not in found.message


def test_times_of_every_spelling_are_read():
    """A series has its own time and count, and newer events have eventTime alone."""
    series = {"series": {"count": 7, "lastObservedTime": "2026-01-01T00:00:40.123456Z"}}
    newer = {"lastTimestamp": None, "eventTime": "2026-01-01T00:00:31.000001Z"}
    found = events_of(
        "a",
        CLUSTER,
        [event("Pod", "a-ps-0", 20, number="1", **series), event("Pod", "a-ps-0", 20, number="2", **newer)],
    )

    assert [(one.uid, one.count) for one in found] == [("e2", 1), ("e1", 7)]


def test_what_happens_again_is_news():
    """An event that is counted up is told again, another is not."""
    first = events_of("a", CLUSTER, [event("Pod", "a-ps-0", 20, number="1"), event("Pod", "a-ps-0", 21, number="2")])
    second = events_of(
        "a", CLUSTER, [event("Pod", "a-ps-0", 20, number="1"), event("Pod", "a-ps-0", 30, number="2", count=2)]
    )

    assert [(one.uid, one.count) for one in news({one.uid: one for one in first}, second)] == [("e2", 2)]


def test_events_of_a_cluster_that_is_gone(client_world):
    """Kubernetes keeps events for an hour; of a cluster that never was there are none."""
    client_world.declare("digits", {"worker": {}})
    client_world.await_condition("digits", "Ready")
    with client_world.client() as client:
        assert [one.reason for one in client.events("digits")] == ["Created"]
        client.delete("digits", wait=True, timeout=GUARD)

        assert [one.reason for one in client.events("digits")] == ["Created"]
        with pytest.raises(NoClusterError):
            list(client.events("letters"))


def test_follow_goes_on_until_the_cluster_is_gone(client_world, monkeypatch):
    """What comes is printed when it comes, one JSON document a line."""
    client_world.declare("digits", {"worker": {"replicas": 2}})
    client_world.await_condition("digits", "Ready")
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

    shown = client_world.cli("events", "digits", "--follow", "-o", "json")

    assert shown.exit_code == 0
    told = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [one["reason"] for one in told][:3] == ["Created", "ViewChanged", "ScaledDown"]


def test_no_warning_is_said(client_world):
    """Nothing on stdout, and the next step on stderr."""
    client_world.declare("digits", {"worker": {}})
    client_world.await_condition("digits", "Ready")

    shown = client_world.cli("events", "digits", "--warnings")

    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "There is no warning of digits" in shown.stderr
    assert " cluster " in client_world.cli("events", "digits").stdout
