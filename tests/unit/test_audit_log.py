"""What tests read in the API server's audit log, whose lines come later than the changes that they tell of."""

import json

import pytest
from support import clock
from support.audit import AuditLog


class Log:
    """An audit log, and the API server as far as a marker needs it."""

    def __init__(self, path):
        self.path = path
        path.touch()

    def get(self, _kind, _namespace, name):
        self.add("ResponseComplete", name, verb="get")

    def add(self, stage, name, verb="patch"):
        event = {"stage": stage, "auditID": name, "verb": verb, "user": {"username": "operator"}}
        event |= {"objectRef": {"name": name}, "requestURI": f"/{name}"}
        event |= dict.fromkeys(("requestReceivedTimestamp", "stageTimestamp"), "2026-01-01T00:00:00.000000Z")
        with self.path.open("a") as lines:
            lines.write(json.dumps(event, separators=(",", ":")) + "\n")


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "audit.log")


def test_write_is_waited_for_until_its_answer_is_logged(log, monkeypatch):
    """A client sees a change before the API server has logged its answer to whoever made it."""
    audit = AuditLog(log.path, log)
    position = audit.position()
    log.add("RequestReceived", "late")
    monkeypatch.setattr(clock, "sleep", lambda _: log.add("ResponseComplete", "late"))

    assert [write.name for write in audit.writes(position, user="operator")] == ["late"]


def test_write_received_before_a_position_is_not_after_it(log):
    audit = AuditLog(log.path, log)
    log.add("RequestReceived", "early")
    position = audit.position()
    log.add("ResponseComplete", "early")

    assert audit.writes(position, user="operator") == []
