"""What `make lint-chart` makes of what the linters find, and of the exceptions."""

from __future__ import annotations

import pytest

from scripts.chart_lint import EXCEPTIONS, Exempted, Finding, judge, read_exceptions

LIMIT = Finding("CKV_K8S_11", "CPU limits should be set", "Deployment.home.r", "default")
EXCEPTED = Exempted("CKV_K8S_11", r"Deployment\.home\..*", "It throttles.")


def test_nothing_is_said_where_each_finding_is_excepted():
    """One exception covers the findings of its check in the objects that it names, with all sets of values."""
    assert judge([LIMIT, Finding("CKV_K8S_11", "", "Deployment.home.s", "minimal")], [EXCEPTED]) == []


@pytest.mark.parametrize(
    "finding",
    [
        Finding("CKV_K8S_12", "Memory requests should be set", "Deployment.home.r", "default"),
        Finding("CKV_K8S_11", "CPU limits should be set", "Pod.home.r", "default"),
        Finding("CKV_K8S_11", "CPU limits should be set", "Other.Deployment.home.r", "default"),
    ],
    ids=["another check", "another object", "a name that ends alike"],
)
def test_other_findings_are_told(finding: Finding):
    """What no exception covers is told, with the check, the object and the values."""
    assert judge([LIMIT, finding], [EXCEPTED]) == [
        f"{finding.check} of {finding.resource} with default values: {finding.title}"
    ]


def test_exceptions_that_are_not_needed_are_told():
    """An exception that covers nothing must go."""
    assert judge([], [EXCEPTED]) == [
        r"lint-exceptions.yaml: CKV_K8S_11 of Deployment\.home\..* excepts nothing: remove it"
    ]


def test_each_exception_has_a_reason():
    """An exception without a reason is an error, and each of the project's has one."""
    with pytest.raises(SystemExit, match="no reason is given for CKV_K8S_1"):
        read_exceptions("[{check: CKV_K8S_1, resources: x, reason: ' '}]")
    assert read_exceptions(EXCEPTIONS.read_text(encoding="utf-8"))
