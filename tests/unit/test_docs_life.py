"""docs/life.md says what the planner does: every cell of its table, every snippet, every field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import life_scenarios
import msgspec
import pytest
import yaml

from tfcluster_operator.declaration.parse import parse
from tfcluster_operator.life import departures, restart
from tfcluster_operator.life.ending import Ending, ending_of, words_for
from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.objects.pod import Pod

#: What the table says of an event that cannot meet a state.
NEVER: Final = "\N{EN DASH}"
MEETINGS: Final = tuple(life_scenarios.possible())
ROOT: Final = Path(__file__).resolve().parents[2]
TEXT: Final = (ROOT / "docs" / "life.md").read_text(encoding="utf-8")
#: The fields of a cluster's life: each has a place in the text.
FIELDS: Final = (
    "suspend",
    "startAfter",
    "restartPolicy",
    "restartScope",
    "backoffLimit",
    "failedPodsHistoryLimit",
    "forceDeleteAfterSeconds",
    "successPolicy",
    "activeDeadlineSeconds",
    "cleanPodPolicy",
    "ttlSecondsAfterFinished",
    "updateStrategy",
    "drainTimeoutSeconds",
    "disruptionBudget",
    "managedBy",
)


def tables() -> Iterator[list[list[str]]]:
    """Give each table of the text as rows of cells, without the line that rules it off."""
    for block in re.findall(r"(?:^\|.*\|\n)+", TEXT, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


def table(first: str) -> list[list[str]]:
    """Return the first table whose first header is this."""
    return next(rows for rows in tables() if rows[0][0] == first)


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


HEADER, *ROWS = table("state")
CELLS: Final = {
    (codes(row[0])[0], event): cell for row in ROWS for event, cell in zip(HEADER[1:], row[1:], strict=True)
}
ACTIONS: Final = {codes(action)[0]: meaning for action, meaning in table("action")[1:]}
FAILS: Final = {codes(meaning)[0]: action for action, meaning in ACTIONS.items() if action.startswith("F:")}


def test_table_has_every_state_and_event():
    assert [codes(row[0])[0] for row in ROWS] == list(life_scenarios.STATES)
    assert HEADER[1:] == list(life_scenarios.EVENTS)


def test_table_says_what_cannot_happen():
    """A dash stands exactly where an event cannot meet a state."""
    assert {cell for cell, action in CELLS.items() if action == NEVER} == life_scenarios.IMPOSSIBLE


@pytest.mark.parametrize(("state", "event"), MEETINGS, ids=map(", ".join, MEETINGS))
def test_table_says_what_the_planner_does(state, event):
    found, _ = life_scenarios.happens(state, event, FAILS)
    assert found == CELLS[state, event]


def test_every_action_is_explained_and_used():
    """The legend has every word of the table, and no other."""
    assert ACTIONS.keys() == set(CELLS.values())


def test_every_state_is_explained():
    explained = next(rows for rows in tables() if rows[0] == ["state", "which task"])
    assert [code for state, _ in explained[1:] for code in codes(state)] == list(life_scenarios.STATES)


@pytest.mark.parametrize(
    ("event", "reason"), [("exit 1", "Error"), ("exit 137", "KilledBySignal"), ("OOM", "OOMKilled")]
)
def test_failures_are_named(event, reason):
    """The status names a failure as the text says."""
    _, scenario = life_scenarios.happens("OnFailure", event, FAILS)
    assert scenario.world.ledger.last_restart.reason == reason
    assert f"`{reason}`" in TEXT


@pytest.mark.parametrize("policy", ["OnFailure", "ExitCode", "Never", "Always"])
def test_restart_policies_are_those_of_the_large_table(policy):
    words = {
        "done": "complete",
        "retry": "restart",
        "again": "runs again",
        "F:code": "cluster fails",
        "F:task": "cluster fails",
    }
    row = next(row for row in table("`restartPolicy`")[1:] if policy in codes(row[0]))
    assert row[1:] == [words[CELLS[policy, event]] for event in ("exit 0", "exit 1", "exit 137")]


def test_numbers_are_those_of_the_code():
    assert (restart.FIRST_PAUSE, restart.LONGEST_PAUSE, restart.FORGIVEN_AFTER) == (1.0, 300.0, 600.0)
    assert departures.STUCK_AFTER == 10.0
    for words in ("pause before a restart is 1 s", "up to 300 s", "Ten minutes after the last try"):
        assert words in TEXT
    assert "Ten seconds after its grace" in TEXT


# --- snippets and fields

SNIPPETS: Final = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
SCHEMA: Final = yaml.safe_load((ROOT / "crds" / "tfcluster.yaml").read_text(encoding="utf-8"))["spec"]["versions"][0][
    "schema"
]["openAPIV3Schema"]
TYPES: Final = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


def faults(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Find what a schema would refuse: unknown fields, wrong types, values that are none of an enum."""
    if schema.get("x-kubernetes-int-or-string") or "type" not in schema:
        return
    if not isinstance(value, TYPES[schema["type"]]):
        yield f"{path}: {value!r} is no {schema['type']}"
    elif value not in schema.get("enum", [value]):
        yield f"{path}: {value!r} is none of {schema['enum']}"
    elif isinstance(value, list):
        for item in value:
            yield from faults(item, schema["items"], f"{path}[]")
    elif isinstance(value, dict) and path != ".metadata":
        for name, inner in value.items():
            yield from _faults_of_field(name, inner, schema, path)


def _faults_of_field(name: str, value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    described = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
    if isinstance(described, dict):
        yield from faults(value, described, f"{path}.{name}")
    elif not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{path}.{name}: unknown"


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[str(number) for number in range(len(SNIPPETS))])
def test_snippet_has_fields_that_exist(snippet):
    assert list(faults(snippet, SCHEMA)) == []


def test_whole_example_is_understood():
    (whole,) = [snippet for snippet in SNIPPETS if "kind" in snippet]
    cluster = parse({**whole, "metadata": {**whole["metadata"], "namespace": "default", "uid": "u"}})
    assert cluster.job("chief").start_after == ("ps", "worker")
    assert cluster.job("ps").restart_scope == "Cluster"


@pytest.mark.parametrize("field", FIELDS)
def test_field_has_a_place(field):
    """Each field of a cluster's life has a heading and a snippet."""
    headings = " ".join(re.findall(r"^## .*$", TEXT, re.MULTILINE))
    assert f"`{field}`" in headings or field == "suspend"
    assert any(field in str(snippet) for snippet in SNIPPETS)


def test_no_field_is_forgotten():
    spec = SCHEMA["properties"]["spec"]["properties"]
    job = spec["jobs"]["additionalProperties"]["properties"]
    shape = {"rpcLayer", "port", "clusterDomain", "resolver", "isolation", "scheduling", "jobs"}
    shape |= {"replicas", "minReplicas", "maxReplicas", "deviceFilters", "taskDeviceFilters", "taskServer", "template"}
    assert {*spec, *job} == shape | set(FIELDS)


def test_short_table_names_every_field():
    named = [code.removeprefix("jobs.J.") for row in table("field")[1:] for code in codes(row[0])]
    assert sorted(named) == sorted(FIELDS)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{f.name}" for f in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_lead_somewhere(page):
    file = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []


#: What stands in the table of ends and is no end by itself.
_REMARKS: Final = ("activeDeadlineSeconds", "OOMKilled")
ENDS: Final = [
    (word, row[0], row[1])
    for row in table("what the pod reports")[1:]
    for word in codes(row[0])
    if word not in _REMARKS
]


@pytest.mark.parametrize(("word", "where", "meaning"), ENDS)
def test_table_says_what_an_end_means(word, where, meaning):
    """Each row decides whatever later ones say: the program has ended with 1, or with the code that the row names."""
    code = int(word) if word.isdecimal() else 1
    reason = word if where.startswith("reason of the container") else "Error"
    ended = [{"name": "task", "state": {"terminated": {"exitCode": code, "reason": reason}}}]
    status: dict[str, Any] = {"phase": "Failed", "containerStatuses": ended}
    if "reason of the pod" in where:
        status["reason"] = word
    elif where.startswith("condition"):
        status["conditions"] = [{"type": word, "status": "True"}]
    body = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "task"}]}, "status": status}
    found = KINDS["Pod"].read(msgspec.json.encode(body))
    assert isinstance(found, Pod)
    assert (
        ending_of(found)
        == {"success": Ending.SUCCEEDED, "failure": Ending.FAILED, "disruption": Ending.DISRUPTED}[meaning]
    )
    if word.isdecimal() and int(word) > 1:
        assert ("killed by signal" in words_for(found)) == (129 <= int(word) <= 192)
