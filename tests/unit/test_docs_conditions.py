"""docs/reference/conditions.md and the code agree: every reason of the one is in the other, at its condition."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import life_scenarios
import lupa
import pytest
import yaml
from in_memory import InMemoryWorld, make_cluster

from tfcluster_operator.declaration import reasons
from tfcluster_operator.engine import reconcile
from tfcluster_operator.kube.metrics import VERDICTS
from tfcluster_operator.plan.actions import Finding
from tfcluster_operator.report.conditions import WAITS
from tfcluster_operator.report.status import deleting_status, invalid_status, status_of

ROOT: Final = Path(__file__).resolve().parents[2]
OPERATOR: Final = ROOT / "operator" / "tfcluster_operator"
TEXT: Final = (ROOT / "docs" / "reference" / "conditions.md").read_text(encoding="utf-8")
REASONS: Final = {name: value for name, value in vars(reasons).items() if name.isupper()}
FAILS: Final = dict.fromkeys(
    ("TaskFailed", "PermanentExitCode", "BackoffLimitExceeded", "DeadlineExceeded"), "the cluster has failed"
)

_ENDS: Final = ("Succeeded", "Failed")
_ROW: Final = re.compile(r"^\| (\w+) \| (`\w+`(?:, `\w+`)*) \| (.+) \| (.+) \|$", re.MULTILINE)


def sections() -> Mapping[str, str]:
    parts = re.split(r"^#{2,3} (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> Iterator[tuple[str, str]]:
    """Return what stands in the first column, and each reason of the second, of every row."""
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


def documented_events() -> set[tuple[str, str]]:
    """Return (type, reason) of every row of the table of events."""
    return set(rows(sections()["Events"]))


def told(status: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    return {(c["type"], c["status"], c["reason"]) for c in status["conditions"]}


@pytest.fixture(scope="module")
def lives() -> SimpleNamespace:
    """All that clusters say of themselves in every meeting of a state and an event, and in the cases below."""
    conditions, posted = set(), set()
    for state, event in life_scenarios.possible():
        _, scenario = life_scenarios.happens(state, event, FAILS)
        conditions |= scenario.told
        posted |= scenario.posted
    for scenario in _rollouts():
        conditions |= scenario.told
        posted |= scenario.posted
    for status in (*_found(), *_timed_out(), _invalid(), _deleting(), _queued(), _stale()):
        conditions |= told(status)
    return SimpleNamespace(conditions=conditions, posted=posted)


def _rollouts() -> Iterator[life_scenarios.Scenario]:
    """An edit of the template under the strategies that wait, and one that never becomes ready."""
    for strategy in ("OnDelete", "RollingUpdate"):
        scenario = life_scenarios.STATES["OnFailure"]()
        scenario.edit(updateStrategy={"type": strategy})
        life_scenarios.EVENTS["edit"](scenario)
        scenario.settle()
        yield scenario
    broken = life_scenarios.STATES["OnFailure"]()
    broken.edit(updateStrategy={"type": "RollingUpdate"})
    life_scenarios.EVENTS["edit"](broken)
    broken.settle(let_run=False)
    waiting = {"name": "task", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
    broken.world.edit("Pod", broken.subject, {"status": {"phase": "Pending", "containerStatuses": [waiting]}})
    broken.settle(let_run=False)
    yield broken


def _found() -> Iterator[Mapping[str, Any]]:
    """A status for each obstacle that lies outside the cluster."""
    cluster, world = make_cluster(), InMemoryWorld()
    for reason in (
        reasons.NAME_TAKEN,
        reasons.RESOLVER_UNTRUSTED,
        reasons.REJECTED,
        reasons.REQUEST_FAILED,
        reasons.CONFLICTING_WRITES,
        reasons.VIEW_TOO_LARGE,
        reasons.TF_CONFIG_TOO_LARGE,
        reasons.WAITING_FOR_PREDECESSOR,
        reasons.WAITING_FOR_JOB,
        reasons.WAITING_FOR_GANG,
        reasons.WAITING_FOR_QUOTA,
        reasons.GANG_UNAVAILABLE,
        reasons.QUEUE_UNAVAILABLE,
    ):
        planned = world.plan(cluster)
        finding = Finding(reason, "words")
        yield status_of(world.roster(cluster), world.ledger, planned.views, (finding,), world.now)
        yield status_of(world.roster(cluster), world.ledger, planned.views, (), world.now, aside=(finding,))


def _invalid() -> Mapping[str, Any]:
    return invalid_status({}, generation=2, problems=["spec.jobs: wrong"], now=0.0)


def _deleting() -> Mapping[str, Any]:
    return deleting_status({}, generation=2, now=0.0)


def _queued() -> Mapping[str, Any]:
    """A status of a cluster that waits in its queue."""
    world, cluster = InMemoryWorld(), replace(make_cluster(), queue="team")
    world.settle(cluster)
    planned = world.plan(cluster)
    return status_of(world.roster(cluster), world.ledger, planned.views, planned.findings, world.now)


def _timed_out() -> Iterator[Mapping[str, Any]]:
    """A status of each cluster whose gang has waited for too long: one has failed, one has given up."""
    for on_timeout in ("Fail", "Suspend"):
        scheduling = {"gang": {"timeoutSeconds": 1, "onTimeout": on_timeout}}
        world, status = InMemoryWorld(), {}
        for _ in range(3):
            cluster = make_cluster(scheduling=scheduling, status=status)
            planned = world.plan(cluster)
            status = status_of(world.roster(cluster), world.ledger, planned.views, planned.findings, world.now)
            world.now += 1.0
        yield status


def _stale() -> Mapping[str, Any]:
    """A status of pods that were not told of the newest view."""
    world = InMemoryWorld()
    world.settle(make_cluster())
    world.all_pods_run()
    larger = make_cluster({"chief": 1, "worker": 3}, generation=2)
    planned = world.plan(larger)
    return status_of(world.roster(larger), world.ledger, planned.views, planned.findings, world.now)


def used_names(tree: ast.AST) -> set[str]:
    """Return the constants of the module of reasons that a module's code names."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "reasons"
    }


def test_documented_reasons_are_those_of_the_code():
    assert {reason for _, reason in rows(TEXT)} == set(REASONS.values())


def test_every_end_is_counted():
    ends = {reason for kind, status, reason in documented_conditions() if status == "True" and kind in _ENDS}
    assert ends == set(VERDICTS)


def test_condition_types_are_documented():
    status = _stale()
    # A heading of several words is about the conditions as a whole.
    headings = [heading for heading in sections() if " " not in heading and heading not in {"Conditions", "Events"}]
    assert sorted(headings) == sorted(condition["type"] for condition in status["conditions"])


def test_documented_conditions_are_shown(lives):
    assert lives.conditions == documented_conditions()


def test_documented_events_are_posted(lives):
    """The table of events has what is done, what is decided and each obstacle, with their severity."""
    severity = {reason: "Warning" if reason in reconcile._WARNINGS else "Normal" for reason in REASONS.values()}
    severity.update(dict.fromkeys(reconcile._UNTOLD, "Log"))
    verdicts = {
        ("Normal" if kind == "Succeeded" else "Warning", reason)
        for kind, status, reason in lives.conditions
        if kind in {"Succeeded", "Failed"} and status == "True"
    }
    obstacles = {("Normal" if one in WAITS else "Warning", one) for one in reconcile._OBSTACLES}
    actions = {(severity[reason], reason) for reason in lives.posted | ACTIONS_OF_OTHER_CAUSES}
    assert documented_events() == verdicts | obstacles | actions


#: What is done for causes that no scenario brings about: edits by others, drains, removed jobs, forced deletions, and
#: second failures.
ACTIONS_OF_OTHER_CAUSES: Final = {
    reasons.REPAIRED,
    reasons.ISOLATION_CHANGED,
    reasons.BUDGET_CHANGED,
    reasons.GANG_CHANGED,
    reasons.QUOTA_REQUEST_CHANGED,
    reasons.READINESS_REPORTED,
    reasons.QUOTA_WITHDRAWN,
    reasons.RECREATED,
    reasons.DRAINING,
    reasons.JOB_REMOVED,
    reasons.FORCED,
    reasons.UNUSED,
    reasons.HISTORY_LIMIT,
}


def test_other_causes_are_actions_in_the_code():
    """What the scenarios leave out is given to an action somewhere."""
    named = set()
    for file in (OPERATOR / "plan").glob("*.py"):
        named |= used_names(ast.parse(file.read_text(encoding="utf-8")))
    assert {REASONS[name] for name in named} >= ACTIONS_OF_OTHER_CAUSES


def test_text_names_no_other_field_or_reason():
    """What stands in backquotes outside the reasons' column is a reason, a condition, or no single CamelCase word."""
    words = set(re.findall(r"`([A-Z][A-Za-z]+)`", TEXT))
    assert words - set(REASONS.values()) <= sections().keys()


# --- Argo CD


def health(cluster: dict[str, Any]) -> tuple[str, str]:
    """Judge a TFCluster by the page's script for Argo CD, in Lua as Argo CD runs it."""
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
