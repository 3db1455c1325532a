"""What happens to a task, by the state that it is in and by what happens: every cell, decided by the real planner.

=============  =======================================================================================================
``-``          cannot happen in this state
``.``          nothing changes
``start``      a pod is created
``done``       the task is complete; it is not run again, even when its pod is deleted
``again``      the pod is replaced at the same name and address, and counted as a disruption
``stuck``      the pod keeps its name until its node answers or is deleted; then as ``again``
``retry``      one restart is counted, and the task gets a new pod after a back-off
``all``        one restart is counted, and all pods of the scope are replaced together after a back-off
``new``        the pod is replaced immediately, and nothing is counted
``gone``       the pod is deleted and not replaced
``more``       the task continues, and the added one gets a pod
``OK``         the cluster has succeeded
``F:…``        the cluster has failed, with the reason in ``FAILS``
``delete``     the TFCluster is deleted
=============  =======================================================================================================

Events: the program ends with an exit code (137 is SIGKILL); its node stops answering; its job's template is edited
under ``Recreate``; its index is removed, or one is added; it is killed by a signal when ``backoffLimit`` is used up.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from unit import life_scenarios

from tfcluster_operator.life.ending import Ending, ending_of, words_for
from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.objects.pod import Pod

TABLE: Final = """\
state    |exit 0|exit 1|exit 137|OOM   |evicted|deleted|node lost|edit|shrink|grow|suspend|deadline|at limit|TTL
waits    |-     |-     |-       |-     |-      |-      |-        |.   |.     |.   |.      |F:late  |-       |.
pending  |-     |-     |-       |-     |again  |again  |stuck    |new |gone  |more|gone   |F:late  |-       |.
OnFailure|done  |retry |retry   |retry |again  |again  |stuck    |new |gone  |more|gone   |F:late  |F:limit |.
ExitCode |done  |F:code|retry   |retry |again  |again  |stuck    |new |gone  |more|gone   |F:late  |F:limit |.
Never    |done  |F:task|F:task  |F:task|again  |again  |stuck    |new |gone  |more|gone   |F:late  |F:task  |.
Always   |again |retry |retry   |retry |again  |again  |stuck    |new |gone  |more|gone   |F:late  |F:limit |.
scope    |done  |all   |all     |all   |again  |again  |stuck    |new |gone  |more|gone   |F:late  |F:limit |.
decides  |OK    |retry |retry   |retry |again  |again  |stuck    |new |gone  |more|gone   |F:late  |F:limit |.
pauses   |-     |-     |-       |-     |-      |.      |.        |new |gone  |more|gone   |F:late  |-       |.
done     |-     |-     |-       |-     |-      |.      |.        |.   |gone  |more|gone   |F:late  |-       |.
leaves   |.     |.     |.       |.     |.      |.      |stuck    |.   |gone  |more|gone   |F:late  |.       |.
suspended|-     |-     |-       |-     |-      |-      |-        |.   |.     |.   |start  |.       |-       |.
Succeeded|.     |.     |.       |.     |.      |.      |.        |.   |.     |.   |.      |.       |.       |delete
Failed   |.     |.     |.       |.     |.      |.      |.        |.   |.     |.   |.      |.       |.       |delete
"""
FAILS: Final = {
    "TaskFailed": "F:task",
    "PermanentExitCode": "F:code",
    "BackoffLimitExceeded": "F:limit",
    "DeadlineExceeded": "F:late",
}

HEADER, *ROWS = ([cell.strip() for cell in line.split("|")] for line in TABLE.splitlines())
CELLS: Final = {(state, event): cell for state, *cells in ROWS for event, cell in zip(HEADER[1:], cells, strict=True)}
MEETINGS: Final = tuple(life_scenarios.possible())


def test_table_has_every_state_and_event():
    """A dash is exactly where an event cannot occur in a state."""
    assert [state for state, *_ in ROWS] == list(life_scenarios.STATES)
    assert HEADER[1:] == list(life_scenarios.EVENTS)
    assert {cell for cell, action in CELLS.items() if action == "-"} == life_scenarios.IMPOSSIBLE


@pytest.mark.parametrize(("state", "event"), MEETINGS, ids=map(", ".join, MEETINGS))
def test_planner_does_what_the_table_says(state, event):
    found, _ = life_scenarios.happens(state, event, FAILS)
    assert found == CELLS[state, event]


@pytest.mark.parametrize(
    ("event", "reason"), [("exit 1", "Error"), ("exit 137", "KilledBySignal"), ("OOM", "OOMKilled")]
)
def test_failures_are_named(event, reason):
    _, scenario = life_scenarios.happens("OnFailure", event, FAILS)
    assert scenario.world.ledger.last_restart.reason == reason


@pytest.mark.parametrize(
    ("word", "where", "meaning"),
    [
        ("DisruptionTarget", "condition", Ending.DISRUPTED),
        ("DeadlineExceeded", "pod", Ending.FAILED),
        *(
            (reason, "pod", Ending.DISRUPTED)
            for reason in (
                "Evicted",
                "Preempting",
                "UnexpectedAdmissionError",
                "OutOfcpu",
                "NodeAffinity",
                "NodeShutdown",
                "Terminated",
            )
        ),
        ("Unknown", "container", Ending.DISRUPTED),
        ("ContainerStatusUnknown", "container", Ending.DISRUPTED),
        ("0", "exit code", Ending.SUCCEEDED),
        *((str(code), "exit code", Ending.FAILED) for code in (1, 128, 129, 192, 193, 255)),
    ],
)
def test_end_of_a_pod_is_judged_by_what_it_reports(word, where, meaning):
    """Each row has priority over later ones: the program has ended with 1, or with the code in the row."""
    code = int(word) if where == "exit code" else 1
    reason = word if where == "container" else "Error"
    ended = [{"name": "task", "state": {"terminated": {"exitCode": code, "reason": reason}}}]
    status: dict[str, Any] = {"phase": "Failed", "containerStatuses": ended}
    if where == "pod":
        status["reason"] = word
    elif where == "condition":
        status["conditions"] = [{"type": word, "status": "True"}]
    body = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "task"}]}, "status": status}
    found = KINDS["Pod"].read(msgspec.json.encode(body))
    assert isinstance(found, Pod)
    assert ending_of(found) == meaning
    if code > 1:
        assert ("killed by signal" in words_for(found)) == (129 <= code <= 192)
