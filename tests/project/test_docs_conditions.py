"""docs/reference/conditions.md and the code agree: both have the same reasons, for the same conditions."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import lupa
import pytest
import yaml

from tfcluster_operator.declaration import reasons
from tfcluster_operator.engine import journal
from tfcluster_operator.kube.metrics import VERDICTS
from tfcluster_operator.report import conditions
from tfcluster_operator.report.conditions import WAITS

ROOT: Final = Path(__file__).resolve().parents[2]
TEXT: Final = (ROOT / "docs" / "reference" / "conditions.md").read_text(encoding="utf-8")
REASONS: Final = {name: value for name, value in vars(reasons).items() if name.isupper()}
_ENDS: Final = ("Succeeded", "Failed")
_ROW: Final = re.compile(r"^\| (\w+) \| (`\w+`(?:, `\w+`)*) \| (.+) \| (.+) \|$", re.MULTILINE)


def sections() -> Mapping[str, str]:
    parts = re.split(r"^#{2,3} (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> Iterator[tuple[str, str]]:
    """Return the first column, and each reason of the second, of every row."""
    for row in _ROW.finditer(text):
        yield from ((row[1], reason) for reason in re.findall(r"\w+", row[2]))


def documented_conditions() -> set[tuple[str, str, str]]:
    """Return (type, status, reason) of every row under a condition's heading."""
    return {
        (heading, status, reason)
        for heading, text in sections().items()
        if heading != "Events"
        for status, reason in rows(text)
    }


def test_documented_reasons_are_those_of_the_code():
    assert {reason for _, reason in rows(TEXT)} == set(REASONS.values())


def test_every_end_is_counted():
    ends = {reason for kind, status, reason in documented_conditions() if status == "True" and kind in _ENDS}
    assert ends == set(VERDICTS)


def test_headings_are_the_conditions():
    # A heading of several words is about the conditions in general.
    headings = [heading for heading in sections() if " " not in heading and heading not in {"Conditions", "Events"}]
    assert sorted(headings) == sorted(conditions.CONDITION_TYPES)


def test_severities_of_events_are_those_of_the_code():
    """Of actions; an obstacle is a warning unless the operator waits for it, and so is a failed cluster."""
    severity = {reason: "Warning" if reason in journal.WARNINGS else "Normal" for reason in REASONS.values()}
    severity |= dict.fromkeys(journal.UNTOLD, "Log")
    severity |= {one: "Normal" if one in WAITS else "Warning" for one in journal.EVENTFUL}
    severity |= {reason: "Warning" for kind, _, reason in documented_conditions() if kind == "Failed"}
    found = set(rows(sections()["Events"]))
    assert {one for one in found if one[0] != severity[one[1]]} == set()


def test_text_names_only_existing_reasons():
    """A term in backquotes outside the reasons' column is a reason, a condition, or not a single CamelCase word."""
    words = set(re.findall(r"`([A-Z][A-Za-z]+)`", TEXT))
    assert words - set(REASONS.values()) <= sections().keys()


# --- Argo CD


def health(cluster: dict[str, Any]) -> tuple[str, str]:
    """Evaluate the page's script for Argo CD, in Lua as Argo CD does."""
    (manifest,) = re.findall(r'```yaml title="argocd-cm.yaml"\n(.*?)```', TEXT, re.DOTALL)
    (script,) = yaml.safe_load(manifest)["data"].values()
    lua = lupa.LuaRuntime()
    lua.globals().obj = lua.table_from(cluster, recursive=True)
    verdict = lua.execute(script)
    return verdict["status"], verdict["message"]


@pytest.mark.parametrize(
    ("true", "status"),
    [
        ((), "Progressing"),
        (("Ready",), "Healthy"),
        (("Ready", "Succeeded"), "Healthy"),
        (("Suspended",), "Suspended"),
        (("Failed", "Stalled"), "Degraded"),
        (("Stalled", "Suspended"), "Degraded"),
    ],
)
def test_argo_cd_shows_what_the_conditions_say(true, status):
    kinds = ("Failed", "Ready", "Stalled", "Succeeded", "Suspended")
    conditions = [{"type": one, "status": "True" if one in true else "False", "message": f"why {one}"} for one in kinds]
    cluster = {"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "conditions": conditions}}
    decides = {"Healthy": "Ready", "Suspended": "Suspended", "Degraded": "Stalled", "Progressing": "Ready"}[status]
    assert health(cluster) == (status, f"why {decides}")
    assert health({**cluster, "metadata": {"generation": 3}})[0] == "Progressing"
    for unseen in ({}, {"status": {}}, {"status": {"observedGeneration": 2}}):
        assert health({"metadata": {"generation": 2}, **unseen})[0] == "Progressing"
